import { defineConfig } from 'vitest/config'

/** The black-box suites whose answers depend on which process is asked, or on the database. The others test the gateway alone. */
const acrossProcesses = [
  'account',
  'answers',
  'app-face',
  'authorization-page',
  'codes',
  'consent',
  'envelope',
  'flow',
  'platform-sign-in',
  'provided-answers',
  'providers',
  'revocation',
  'secrets',
  'sign-in',
  'survey-provider',
  'surveys',
  'tokens',
  'tracing',
].map((name) => `test/blackbox/${name}.test.ts`)

export default defineConfig({
  test: {
    pool: 'forks',
    isolate: false, // the files of a worker share what they import: loading it anew took a third of the time
    execArgv: ['--experimental-websocket'], // the tests' Firefox is driven through one; global in Node 22, behind this flag in Node 20
    maxWorkers: 3, // on two cores: many files wait for processes and for time to pass
    testTimeout: 60_000,
    hookTimeout: 60_000,
    globalSetup: ['test/postgres/global-setup.ts'],
    projects: [
      { extends: true, test: { name: 'one process', include: ['test/**/*.test.ts'] } },
      {
        extends: true,
        test: { name: 'separate processes', include: acrossProcesses, env: { SURVEY_AUTH_TEST_MODE: 'separate' } },
      },
      {
        extends: true,
        test: {
          name: 'two of each on PostgreSQL',
          include: acrossProcesses,
          env: { SURVEY_AUTH_TEST_MODE: 'two-of-each' },
        },
      },
    ],
  },
})
