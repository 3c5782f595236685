// What the doctor says of databases that this program does not write yet, or no longer.
import path from 'node:path'
import { describe, expect, test, vi } from 'vitest'
import { Database } from '../../services/sqlite/driver.js'
import { migrate } from '../../services/sqlite/migrate.js'
import { openDatabase } from '../../services/sqlite/open.js'
import { tokenSchema } from '../../services/token/store/sqlite/schema.js'
import { createProcess, type ServiceProcess } from '../harness/process.js'

vi.setConfig({ testTimeout: 120_000 }) // each test spawns several processes

interface Finding {
  readonly check: string
  readonly state: string
  readonly detail: string
}

/** What it finds about each database, and how it ends. */
async function examine(service: ServiceProcess, env: Record<string, string> = {}) {
  const { exitCode, stdout } = await service.cli(['doctor', '--json'], { env })
  const findings = JSON.parse(stdout) as Finding[]
  const of = (check: string) => findings.find((finding) => finding.check === check)
  return { exitCode, stdout, token: of('token database'), survey: of('survey database') }
}

describe('SQLite', () => {
  test.each([
    ['token', 'app list', ['app', 'list']],
    ['survey', 'migrate', ['migrate']],
  ] as const)('a %s database of a newer program is wrong, in the words of %s', async (name, _, args) => {
    const service = await createProcess()
    await service.cli(['migrate'])
    const file = path.join(service.dataDir, `${name}.db`)
    const db = new Database(file)
    db.pragma('user_version = 99')
    db.close()
    const { exitCode, [name]: found } = await examine(service)
    expect({ exitCode, found }).toMatchObject({ exitCode: 1, found: { state: 'wrong' } })
    expect(found?.detail).toContain(`${file} has ${name} schema version 99, this program knows `)
    expect((await service.cli(args)).stderr).toBe(`survey-auth: ${found?.detail}\n`)
  })

  test('a database of an older program is in order: the next start migrates it', async () => {
    const service = await createProcess()
    const db = openDatabase(path.join(service.dataDir, 'token.db'))
    migrate(db, { ...tokenSchema, migrations: tokenSchema.migrations.slice(0, 2) })
    db.close()
    const { exitCode, token } = await examine(service)
    expect({ exitCode, token }).toMatchObject({
      exitCode: 0,
      token: { state: 'ok', detail: 'schema version 2, intact; the next start migrates it' },
    })
  })

  test('the file of one store is wrong as that of the other', async () => {
    const service = await createProcess()
    await service.cli(['migrate'])
    const file = path.join(service.dataDir, 'survey.db')
    const other = path.join(service.dataDir, 'other.db')
    const env = { TOKEN_DATABASE_URL: `sqlite:${file}`, SURVEY_DATABASE_URL: `sqlite:${other}` }
    const { exitCode, token } = await examine(service, env)
    expect({ exitCode, detail: token?.detail }).toEqual({
      exitCode: 1,
      detail: `${file} is not a token database of this program`,
    })
  })
})
