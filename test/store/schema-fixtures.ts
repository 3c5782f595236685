// Databases as text: fixtures/ has one folder for each version whose schema differs from the one before.
// `made` is a service with some of everything, as the current program makes it.
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { Database } from '../../services/sqlite/driver.js'
import { surveySchema as surveyPostgres } from '../../services/survey/store/postgres/schema.js'
import { tokenSchema as tokenPostgres } from '../../services/token/store/postgres/schema.js'
import { everyQuestionType, smallSurvey } from '../harness/sample-surveys.js'
import { type Access, tokensOf, type Verbs } from '../harness/verbs.js'
import { query } from '../postgres/cluster.js'

const FIXTURES = fileURLToPath(new URL('fixtures/', import.meta.url))

/** What clients of a fixture's service hold. */
export interface Holdings {
  readonly good: Access
  readonly revoked: Access
  readonly unusedCode: string
  readonly usedCode: string
  readonly surveys: readonly { readonly id: number; readonly title: string }[]
}

/** The text of each database; both stores share the one of PostgreSQL. */
export interface Texts {
  readonly 'token.db.sql': string
  readonly 'survey.db.sql': string
  readonly 'postgres.sql': string
}

export interface Fixture {
  readonly name: string
  readonly texts: Texts
  /** For the service on SQLite, and for the one on PostgreSQL. */
  readonly holdings: Readonly<Record<Engine, Holdings>>
}

export const ENGINES = ['sqlite', 'postgres'] as const
export type Engine = (typeof ENGINES)[number]

export function fixtures(): Fixture[] {
  const names = readdirSync(FIXTURES, { withFileTypes: true }).filter((entry) => entry.isDirectory())
  return names.map(({ name }) => {
    const read = (file: string) => readFileSync(join(FIXTURES, name, file), 'utf8')
    return {
      name,
      texts: {
        'token.db.sql': read('token.db.sql'),
        'survey.db.sql': read('survey.db.sql'),
        'postgres.sql': read('postgres.sql'),
      },
      holdings: JSON.parse(read('holdings.json')) as Fixture['holdings'],
    }
  })
}

/** Makes the SQLite files of a fixture. */
export function loadFiles(dataDir: string, texts: Texts): void {
  for (const name of ['token.db', 'survey.db'] as const) {
    const db = new Database(join(dataDir, name))
    db.exec(texts[`${name}.sql`])
    db.close()
  }
}

export function writeFixture({ name, texts, holdings }: Fixture): void {
  const folder = join(FIXTURES, name)
  mkdirSync(folder)
  for (const [file, text] of Object.entries(texts)) writeFileSync(join(folder, file), text)
  writeFileSync(join(folder, 'holdings.json'), `${JSON.stringify(holdings, null, 2)}\n`)
}

/** Puts some of everything into an empty service; the clock stands still, so all of it is still good after a restart. */
export async function fill(service: Verbs): Promise<Holdings> {
  const app = await service.createApp({ name: '报告 Builder' })
  const user = await service.createUser({ username: 'li.wei', nickname: '李伟' })
  const visitor = await service.signedIn(user)
  const titles = ['满意度调查', "It's lunch"]
  const ids = await service.importSurveys(user, [everyQuestionType(titles[0]), smallSurvey(titles[1])])
  const revoked = await service.grantAccess({ app, user, visitor })
  for (const grantId of await service.grantIds()) await service.admin.revokeGrant({ grantId })
  const usedCode = await service.issueCode(app, user, { visitor })
  const good = { app, user, tokens: tokensOf(await service.exchange(app, usedCode)) }
  await service.refresh(app, good.tokens.refresh_token)
  const unusedCode = await service.issueCode(app, user, { visitor })
  const other = await service.createApp({ name: 'Disabled' })
  await service.admin.setAppDisabled({ appid: other.appid, disabled: true })
  await service.admin.addAppSecret({ appid: app.appid, name: '2040' })
  return { good, revoked, unusedCode, usedCode, surveys: ids.map((id, at) => ({ id, title: titles[at] ?? '' })) }
}

/** Statements that recreate the file. */
export function sqliteText(file: string): string {
  const db = new Database(file, { readonly: true })
  try {
    const made = db
      .prepare<[], string>('SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY rowid')
      .pluck()
      .all()
    const tables = db
      .prepare<[], string>(`SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY rowid`)
      .pluck()
      .all()
    const rows = tables.flatMap((table) => {
      const columns = db.prepare<[string], string>('SELECT name FROM pragma_table_info(?)').pluck().all(table)
      const values = columns.map((column) => `quote(${column})`).join(` || ', ' || `)
      const lines = db.prepare<[], string>(`SELECT ${values} FROM ${table}`).pluck().all()
      return lines.map((line) => `INSERT INTO ${table} (${columns.join(', ')}) VALUES (${line});`)
    })
    const marks = ['application_id', 'user_version'].map(
      (name) => `PRAGMA ${name} = ${Number(db.pragma(name, { simple: true }))};`,
    )
    return `${[...marks, ...made.map((sql) => `${sql};`), ...rows].join('\n')}\n`
  } finally {
    db.close()
  }
}

/** Statements that recreate the database of both stores. */
export async function postgresText(url: string): Promise<string> {
  const migrations = [tokenPostgres, surveyPostgres].flatMap((schema) => schema.migrations.map(({ sql }) => sql))
  const tables = await query(
    url,
    `SELECT relname AS name FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace ORDER BY oid`,
  )
  const rows: string[] = []
  for (const { name } of tables) rows.push(...(await insertsOf(url, String(name))))
  return [
    'CREATE TABLE schema_versions (name text PRIMARY KEY, version integer NOT NULL);',
    ...migrations,
    'DELETE FROM survey_ids; -- the migration makes its row',
    ...rows,
    '',
  ].join('\n')
}

async function insertsOf(url: string, table: string): Promise<string[]> {
  const columns = await query(
    url,
    `SELECT attname AS name FROM pg_attribute WHERE attrelid = '${table}'::regclass AND attnum > 0 ORDER BY attnum`,
  )
  const names = columns.map(({ name }) => String(name))
  const values = names.map((name) => `quote_nullable(${name}::text)`).join(` || ', ' || `)
  const lines = await query(url, `SELECT ${values} AS line FROM ${table}`)
  return lines.map(({ line }) => `INSERT INTO ${table} (${names.join(', ')}) VALUES (${line});`)
}
