import { defineConfig } from 'vitest/config'

export default defineConfig({
  test: {
    pool: 'forks',
    isolate: false, // the files of a worker share what they import: loading it anew took a third of the time
    maxWorkers: 2,
    execArgv: ['--experimental-websocket'], // the tests' Firefox is driven through one; global in Node 22, behind this flag in Node 20
    testTimeout: 60_000,
    hookTimeout: 60_000,
    globalSetup: ['test/postgres/global-setup.ts'],
    projects: [
      { extends: true, test: { name: 'one process', include: ['test/**/*.test.ts'] } },
      {
        extends: true,
        test: {
          name: 'separate processes',
          include: ['test/blackbox/**/*.test.ts'],
          exclude: ['test/blackbox/process.test.ts'], // spawns `serve all` itself
          env: { SURVEY_AUTH_TEST_MODE: 'separate' },
        },
      },
      {
        extends: true,
        test: {
          name: 'two of each on PostgreSQL',
          include: ['test/blackbox/**/*.test.ts'],
          exclude: ['test/blackbox/process.test.ts'], // spawns `serve all` on SQLite itself
          env: { SURVEY_AUTH_TEST_MODE: 'two-of-each' },
        },
      },
    ],
  },
})
