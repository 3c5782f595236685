// The short version of `npm run test:upgrade`, and what a version does that cannot share a database with the one before.
import { execFile } from 'node:child_process'
import { readFileSync } from 'node:fs'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'
import { createProcess } from '../harness/process.js'
import { makeNextProgram } from '../long/next-program.js'
import { query } from '../postgres/cluster.js'
import { createDatabase } from '../postgres/shared-cluster.js'
import { temporaryDirectory } from '../store/temporary-directory.js'

const SCRIPT = fileURLToPath(new URL('../long/upgrade.js', import.meta.url))

test('two of each are upgraded one by one under load on a migrated database, and back, and nothing fails or is lost', {
  timeout: 600_000,
}, async () => {
  const run = promisify(execFile)(process.execPath, [SCRIPT, '--ways', '3', '--clients', '4', '--pause', '100'])
  const { stdout } = await run.catch((error: { stdout: string }) => error)
  expect(stdout).toMatch(/\nfrom \d+\.\d+\.\d+ to \d+\.\d+\.\d+: 0 wrong\n$/)
})

test.each(['SQLite', 'PostgreSQL'])(
  'after a migration on %s that excludes it, the program before refuses the database by name, and leaves it alone',
  async (kind) => {
    const service = await createProcess()
    const url = kind === 'SQLite' ? undefined : await createDatabase()
    const env = url ? { TOKEN_DATABASE_URL: url, SURVEY_DATABASE_URL: url } : undefined
    const files = () => ['token.db', 'survey.db'].map((name) => readFileSync(path.join(service.dataDir, name)))
    const content = () => (url ? query(url, 'SELECT * FROM schema_versions ORDER BY name') : files())
    await service.run(['migrate'], { env })
    const program = makeNextProgram(temporaryDirectory(), { excludes: true })
    expect(await service.cli(['migrate'], { env, program })).toMatchObject({ exitCode: 0 })
    const before = await content()
    const refused = {
      exitCode: 78,
      stderr: expect.stringMatching(
        /the (token|survey) database .*has schema version 2, which needs a program that knows 2; this one knows 1: run a newer/,
      ),
    }
    for (const args of [['serve'], ['migrate'], ['app', 'list'], ...(url ? [] : [['backup', 'b.tar']])]) {
      expect({ args, ...(await service.run(args, { env })) }).toMatchObject({ args, ...refused })
    }
    expect(await content()).toEqual(before)
  },
)
