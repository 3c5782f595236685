import { createHash } from 'node:crypto'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, onTestFinished, test } from 'vitest'
import { surveyCopy, tokenCopy } from '../../bin/compose/copied-schemas.js'
import { CopyRefused } from '../../services/storage/copy/copy-refused.js'
import { copyStores, type Job, type OnProgress } from '../../services/storage/copy/copy-stores.js'
import { openSource } from '../../services/storage/copy/source.js'
import { openTarget } from '../../services/storage/copy/target.js'
import { kindOf } from '../../services/storage/copy/values.js'
import { Database } from '../../services/storage/sqlite/driver.js'
import { migrate } from '../../services/storage/sqlite/migrate.js'
import { openDatabase } from '../../services/storage/sqlite/open.js'
import { StoreUnavailable } from '../../services/storage/store-unavailable.js'
import { openPostgresSurveyStore } from '../../services/survey/store/postgres/postgres-survey-store.js'
import { openSqliteSurveyStore } from '../../services/survey/store/sqlite/sqlite-survey-store.js'
import type { SurveyStore } from '../../services/survey/store/survey-store.js'
import { openPostgresTokenStore } from '../../services/token/store/postgres/postgres-token-store.js'
import { openSqliteTokenStore } from '../../services/token/store/sqlite/sqlite-token-store.js'
import type { TokenStore } from '../../services/token/store/token-store.js'
import { closing } from '../postgres/closing.js'
import { query } from '../postgres/cluster.js'
import { patient } from '../postgres/patient.js'
import { createDatabase } from '../postgres/shared-cluster.js'
import { temporaryDirectory } from '../store/temporary-directory.js'
import { allPages, byOperator, grant, hashOf, NOW, seed } from '../store/token-store-verbs.js'
import { fullSurveyFile, fullTokenFile, rawRowsOf, rowsOf } from './full-stores.js'

const quietly = () => undefined

const copyTokens = (file: string, url: string, onProgress: OnProgress = quietly) =>
  copyStores([{ file, schema: tokenCopy, url }], onProgress)

/** SQLite columns whose values PostgreSQL keeps in other columns, or does not need. */
const SQLITE_ONLY = [
  'audit_blocks.block',
  'audit_blocks.ids',
  'audit_events.number',
  'clean_ups.at_ms',
  'clean_ups.only_row',
  'grants.access_tokens',
  'grants.code_challenge',
  'grants.code_expires_at_ms',
  'grants.code_hash',
  'grants.issued_at_ms',
  'grants.place',
  'grants.redirect_uri',
]
/** The PostgreSQL columns that hold those values. */
const POSTGRES_ONLY = Object.entries({
  access_tokens: 'access_token_hash expires_at_ms grant_id serial',
  codes:
    'appid code_challenge code_hash consent_version expires_at_ms grant_id issued_at_ms permissions redirect_uri scope used_at_ms user_id',
}).flatMap(([table, columns]) => columns.split(' ').map((column) => `${table}.${column}`))
/** SQLite tables that are empty in a file of the current version. */
const EMPTY = ['audit_blocks', 'clean_ups']

/** Counts the rows of the copied tables. */
async function rowsIn(url: string, file: string): Promise<number> {
  const counts = Object.keys(rowsOf(file)).map((table) => query(url, `SELECT count(*)::int AS count FROM ${table}`))
  return (await Promise.all(counts)).reduce((sum, [row]) => sum + Number(row?.count), 0)
}

/** Everything a token store lists; events sorted by id, since SQLite lists them in the order of writing. */
async function everythingOf(store: TokenStore) {
  const apps = await allPages((page) => store.listApps(page), 100)
  return {
    apps,
    secrets: await Promise.all(apps.map(({ appid }) => store.listAppSecrets(appid))),
    users: await allPages((page) => store.listUsers(page), 100),
    identities: await store.listIdentities('user_4711'),
    session: await store.findSession(hashOf('session')),
    grants: await allPages((page) => store.listGrants({}, page), 100),
    events: (await allPages((page) => store.listAuditEvents({}, page), 100)).sort((a, b) =>
      a.eventId < b.eventId ? 1 : -1,
    ),
  }
}

async function everySurveyOf(store: SurveyStore) {
  const surveys = await store.exportSurveys(undefined, { afterId: 0, limit: 100, maxBytes: Number.MAX_SAFE_INTEGER })
  return {
    surveys: surveys.map(({ document, ...rest }) => ({ ...rest, document: Buffer.from(document).toString('hex') })),
    lists: await Promise.all(
      ['user_ann', 'user_bob'].map((owner) => store.listSurveys(owner, { offset: 0, limit: 100 })),
    ),
  }
}

describe('a copy', () => {
  test('is tested on files with a value in every column, and a null in every nullable one', async () => {
    for (const [file, schema] of [
      [await fullTokenFile(temporaryDirectory()), tokenCopy],
      [await fullSurveyFile(temporaryDirectory()), surveyCopy],
    ] as const) {
      const db = openDatabase(file)
      for (const [table, rows] of Object.entries(rawRowsOf(file))) {
        if (EMPTY.includes(table)) continue
        const columns = db.prepare<[string], { name: string; notnull: number }>(
          'SELECT name, "notnull" OR pk AS "notnull" FROM pragma_table_info(?)',
        )
        for (const { name, notnull } of columns.all(table)) {
          const values = rows.map((row) => row[name])
          expect(
            values.some((value) => value !== null),
            `${schema.sqlite.name}: ${table}.${name} has a value`,
          ).toBe(true)
          expect(notnull === 1 || values.includes(null), `${schema.sqlite.name}: ${table}.${name} has a null`).toBe(
            true,
          )
          const isFlag = name.startsWith('is_') || name.startsWith('requires_')
          expect(!isFlag || new Set(values).size === 2, `${table}.${name} is true and false`).toBe(true)
        }
      }
      db.close()
    }
  })

  test('holds the same apps, secrets, users, sessions, grants and events', async () => {
    const file = await fullTokenFile(temporaryDirectory())
    const url = await createDatabase()
    const reports = await copyTokens(file, url)
    const counts = Object.entries(rowsOf(file)).map(([table, { length }]) => [table, length, true])
    expect(reports.map(({ table, rows, isEqual }) => [table, rows, isEqual]).sort()).toEqual(counts.sort())
    const tokens = await query(url, 'SELECT * FROM access_tokens ORDER BY access_token_hash')
    const expected = (rowsOf(file).access_tokens ?? []).map(({ serial, expires_at_ms, ...rest }) => ({
      ...rest,
      serial: Number(serial),
      expires_at_ms: String(expires_at_ms),
    }))
    expect(tokens).toHaveLength(expected.length)
    expect(tokens).toEqual(expect.arrayContaining(expected))
    const source = closing(openSqliteTokenStore({ file }))
    const copy = closing(await openPostgresTokenStore({ url, ...patient }))
    expect(await everythingOf(copy)).toEqual(await everythingOf(source))
  })

  test('holds the same surveys byte for byte, and gives new ones the ids that the file would have given', async () => {
    const file = await fullSurveyFile(temporaryDirectory())
    const url = await createDatabase()
    await copyStores([{ file, schema: surveyCopy, url }], quietly)
    const source = closing(openSqliteSurveyStore({ file }))
    const copy = closing(await openPostgresSurveyStore({ url, ...patient }))
    expect(await everySurveyOf(copy)).toEqual(await everySurveyOf(source))
    const draft = { surveyId: 0, hash: '', title: 'new', state: 2, document: Buffer.of(1) }
    expect(await copy.putSurveys('user_ann', [draft], NOW, byOperator)).toMatchObject({ rows: [{ surveyId: 81 }] })
    expect(await copy.deleteSurveys([80], NOW, byOperator)).toEqual({ kind: 'deleted', alreadyDeleted: 1 })
  })

  test('of both files can go to one database, and many rows are written in batches', async () => {
    const directory = temporaryDirectory()
    const [tokens, surveys] = [await fullTokenFile(directory), await fullSurveyFile(directory)]
    const db = new Database(tokens)
    const insert = db.prepare(
      `INSERT INTO audit_events VALUES (NULL, ?, 1, 'code.issued', 'user', '', '', '', '', '', '', '李')`,
    )
    db.transaction(() => Array.from({ length: 10_500 }, (_, n) => insert.run(`event ${n}`)))()
    db.close()
    const url = await createDatabase()
    const batches: number[] = []
    const onProgress = (table: string, rows: number) => table === 'audit_events' && batches.push(rows)
    const jobs: Job[] = [
      { file: surveys, schema: surveyCopy, url },
      { file: tokens, schema: tokenCopy, url },
    ]
    const reports = await copyStores(jobs, onProgress)
    expect(reports.every(({ isEqual }) => isEqual)).toBe(true)
    expect(batches.length).toBe(11)
    expect(await rowsIn(url, tokens)).toBe(Object.values(rowsOf(tokens)).flat().length)
  })

  test('is written in batches of a few million characters where rows are large', async () => {
    const file = await fullSurveyFile(temporaryDirectory())
    const db = new Database(file)
    db.exec('UPDATE surveys SET document = zeroblob(1500000)') // twice as many characters in hex
    const total = db.prepare<[], number>('SELECT count(*) FROM surveys').pluck().get() ?? 0
    db.close()
    const written: number[] = []
    const onProgress = (table: string, rows: number) => table === 'surveys' && written.push(rows)
    const url = await createDatabase()
    const reports = await copyStores([{ file, schema: surveyCopy, url }], onProgress)
    expect(reports.every(({ isEqual }) => isEqual)).toBe(true)
    expect(written).toEqual(Array.from({ length: Math.ceil(total / 2) }, (_, n) => Math.min(2 * n + 2, total)))
  })

  test('leaves tables whose sizes the query planner knows', async () => {
    const url = await createDatabase()
    const reports = await copyTokens(await fullTokenFile(temporaryDirectory()), url)
    const names = reports.map(({ table }) => `'${table}'`).join()
    const known = await query(
      url,
      `SELECT relname AS table, reltuples::int AS rows FROM pg_class WHERE relkind = 'r' AND relname IN (${names})`,
    )
    const written = reports.map(({ table, rows }) => ({ table, rows }))
    expect(known).toHaveLength(written.length)
    expect(known).toEqual(expect.arrayContaining(written))
  })

  test('locks its tables against writes until it ends, and not against reads', async () => {
    const file = await fullTokenFile(temporaryDirectory())
    const url = await createDatabase()
    const source = openSource(file)
    const target = await openTarget(url, tokenCopy.postgres)
    const tables = await Promise.all(source.tables(tokenCopy.tablesInPostgres).map((table) => target.describe(table)))
    source.close()
    await target.requireEmpty(tables)
    expect(await rowsIn(url, file)).toBe(0)
    const deleting = tables.map(({ name }) => `SET lock_timeout = 50; DELETE FROM "${name}"`)
    for (const statement of deleting) await expect(query(url, statement), statement).rejects.toThrow('lock timeout')
    await target.close()
    for (const statement of deleting) await query(url, statement)
  })

  test('works on tables from which a column was dropped', async () => {
    const file = await fullTokenFile(temporaryDirectory())
    const url = await createDatabase()
    await (await openPostgresTokenStore({ url, ...patient })).close()
    await query(url, 'ALTER TABLE users ADD COLUMN gone text; ALTER TABLE users DROP COLUMN gone')
    const reports = await copyTokens(file, url)
    expect(reports.filter(({ isEqual }) => !isEqual)).toEqual([])
  })

  test('allows an hour for a statement, and any time between two', async () => {
    const target = await openTarget(await createDatabase(), tokenCopy.postgres)
    onTestFinished(() => target.close())
    for (const [setting, value] of [
      ['statement_timeout', '1h'],
      ['idle_in_transaction_session_timeout', '0'],
    ])
      await target.run(`DO $$ BEGIN ASSERT current_setting('${setting}') = '${value}', '${setting}'; END $$`)
  })

  test('leaves neither a connection nor the file open, whether it is made or refused', async () => {
    const file = await fullTokenFile(temporaryDirectory())
    const url = await createDatabase()
    const ours = `SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'survey-auth'`
    await copyTokens(file, url)
    await expect.poll(() => query(url, ours), { timeout: 10_000 }).toEqual([])
    await expect(copyTokens(file, url)).rejects.toThrow('the target is not empty')
    await expect.poll(() => query(url, ours), { timeout: 10_000 }).toEqual([])
    const db = new Database(file)
    db.pragma('locking_mode = EXCLUSIVE')
    db.exec('BEGIN EXCLUSIVE; ROLLBACK')
    db.close()
  })

  test('leaves the file as it was, to the byte', async () => {
    const file = await fullTokenFile(temporaryDirectory())
    const before = createHash('sha256').update(readFileSync(file)).digest('hex')
    await copyTokens(file, await createDatabase())
    expect(createHash('sha256').update(readFileSync(file)).digest('hex')).toBe(before)
  })
})

describe('a copy is refused, and nothing is written,', () => {
  test.each(['users', 'audit_events', 'openids'])('when %s of the target has a row', async (table) => {
    const file = await fullTokenFile(temporaryDirectory())
    const url = await createDatabase()
    const other = await openPostgresTokenStore({ url, ...patient })
    await seed(other)
    await grant(other)
    await other.close()
    const rest = Object.keys(rowsOf(file)).filter((name) => name !== table)
    await query(url, `SET session_replication_role = replica; ${rest.map((name) => `DELETE FROM ${name};`).join(' ')}`)
    const before = await rowsIn(url, file)
    await expect(copyTokens(file, url)).rejects.toThrow(`the target is not empty: ${table} has rows`)
    expect(await rowsIn(url, file)).toBe(before)
  })

  test('when it has been made before', async () => {
    const file = await fullTokenFile(temporaryDirectory())
    const url = await createDatabase()
    await copyTokens(file, url)
    await expect(copyTokens(file, url)).rejects.toThrow('the target is not empty')
  })

  test('while a service has the file open', async () => {
    const file = await fullTokenFile(temporaryDirectory())
    const url = await createDatabase()
    const service = openSqliteTokenStore({ file })
    await expect(copyTokens(file, url)).rejects.toThrow('is in use')
    await service.close()
  })

  test.each([
    ['is of nobody', fullTokenFile, tokenCopy, 'grants', `user_id = 'nobody'`],
    ['has text that PostgreSQL cannot hold', fullTokenFile, tokenCopy, 'users', `nickname = 'a' || char(0)`],
    ['has a number that is too large', fullSurveyFile, surveyCopy, 'surveys', 'state = 2147483648'],
  ] as const)('when a row %s', async (_, fullFile, schema, table, change) => {
    const file = await fullFile(temporaryDirectory())
    const url = await createDatabase()
    const db = new Database(file)
    db.pragma('foreign_keys = OFF')
    db.exec(`UPDATE ${table} SET ${change}`)
    db.close()
    const copied = copyStores([{ file, schema, url }], quietly)
    await expect(copied).rejects.toThrow(`PostgreSQL refuses a row of ${table}`)
    await expect(copied).rejects.toBeInstanceOf(CopyRefused)
    expect(await rowsIn(url, file)).toBe(0)
  })

  test('when a table of the target has a column that the file does not have', async () => {
    const file = await fullTokenFile(temporaryDirectory())
    const url = await createDatabase()
    await (await openPostgresTokenStore({ url, ...patient })).close()
    await query(url, 'ALTER TABLE users ADD COLUMN more text')
    await expect(copyTokens(file, url)).rejects.toThrow(/^users has \d+ columns in PostgreSQL$/)
    expect(await rowsIn(url, file)).toBe(0)
  })

  test('when the file is missing, is not a token database, or is damaged', async () => {
    const directory = temporaryDirectory()
    const url = await createDatabase()
    await expect(copyTokens(join(directory, 'none.db'), url)).rejects.toThrow('there is no database at')
    writeFileSync(
      join(directory, 'text.db'),
      'not a database, but longer than the header of one is: 100 bytes '.repeat(9),
    )
    await expect(copyTokens(join(directory, 'text.db'), url)).rejects.toThrow('is not a SQLite database')
    const surveys = await fullSurveyFile(directory)
    await expect(copyTokens(surveys, url)).rejects.toThrow('is not a token database of this program')
    const file = await fullTokenFile(directory)
    const bytes = readFileSync(file)
    bytes.fill(0x5a, 4096 * 3)
    writeFileSync(file, bytes)
    await expect(copyTokens(file, url)).rejects.toThrow('is damaged')
  })

  test('when the file cannot be opened, which is said', async () => {
    const copied = copyTokens(temporaryDirectory(), await createDatabase())
    await expect(copied).rejects.toMatchObject({ cause: { message: expect.stringContaining('SQLITE_CANTOPEN') } })
    await expect(copied).rejects.toBeInstanceOf(StoreUnavailable)
  })

  test('when the file is damaged in an index', async () => {
    const file = await fullTokenFile(temporaryDirectory())
    const db = new Database(file, { readonly: true })
    const page = db.prepare<[], number>(`SELECT rootpage FROM sqlite_schema WHERE type = 'index' AND sql <> ''`)
    const [offset, size] = [(page.pluck().get() ?? 0) - 1, Number(db.pragma('page_size', { simple: true }))]
    db.close()
    const bytes = readFileSync(file)
    bytes.fill(0x5a, offset * size, (offset + 1) * size)
    writeFileSync(file, bytes)
    await expect(copyTokens(file, await createDatabase())).rejects.toThrow(`${file} is damaged`)
  })

  test.each([
    [0, /has schema version 0, this program knows \d+: run `survey-auth migrate` on it first/],
    [99, /has schema version 99, this program knows \d+: run a newer program/],
  ])('when the file is of schema version %i', async (version, reason) => {
    const file = await fullTokenFile(temporaryDirectory())
    const db = new Database(file)
    db.pragma(`user_version = ${version}`)
    db.close()
    await expect(copyTokens(file, await createDatabase())).rejects.toThrow(reason)
  })

  test('when a newer program has migrated the target, though it may be used', async () => {
    const url = await createDatabase()
    await (await openPostgresTokenStore({ url, ...patient })).close()
    await query(url, 'UPDATE schema_versions SET version = 99')
    const copied = copyTokens(await fullTokenFile(temporaryDirectory()), url)
    await expect(copied).rejects.toThrow(
      /^the token database has schema version 99, this program knows \d+: run a newer/,
    )
    expect(await query(url, 'SELECT appid FROM apps')).toEqual([])
  })

  test('when PostgreSQL cannot be reached', async () => {
    const file = await fullTokenFile(temporaryDirectory())
    await expect(copyTokens(file, 'postgres://postgres@127.0.0.1:1/none')).rejects.toBeInstanceOf(StoreUnavailable)
  })

  /** Creates the target's tables, and a trigger that alters rows written to one of them. */
  async function tampering(table: string, body: string): Promise<string> {
    const url = await createDatabase()
    await (await openPostgresTokenStore({ url, ...patient })).close()
    await query(url, `CREATE FUNCTION tamper() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN ${body} END $$`)
    await query(url, `CREATE TRIGGER tamper BEFORE INSERT ON ${table} FOR EACH ROW EXECUTE FUNCTION tamper()`)
    return url
  }

  test.each([
    ['a value differs', 'audit_events', `NEW.note := NEW.note || ' '; RETURN NEW;`],
    [
      'a hash differs in one bit',
      'access_tokens',
      `NEW.access_token_hash := set_bit(NEW.access_token_hash, 9, 1 - get_bit(NEW.access_token_hash, 9)); RETURN NEW;`,
    ],
    ['a flag differs', 'users', 'NEW.is_disabled := NOT NEW.is_disabled; RETURN NEW;'],
    ['a null became something', 'app_secrets', `NEW.revoked_at_ms := coalesce(NEW.revoked_at_ms, 0); RETURN NEW;`],
    [
      'a list lost its order',
      'apps',
      'NEW.redirect_uris := ARRAY(SELECT unnest(NEW.redirect_uris) ORDER BY 1 DESC); RETURN NEW;',
    ],
    ['a row is missing', 'sessions', 'RETURN NULL;'],
  ])('when %s after it was written', async (_, table, body) => {
    const file = await fullTokenFile(temporaryDirectory())
    const url = await tampering(table, body)
    const reports = await copyTokens(file, url)
    expect(reports.filter(({ isEqual }) => !isEqual).map((report) => report.table)).toEqual([table])
    expect(await rowsIn(url, file)).toBe(0)
  })

  test.each([
    ['while rows are written', 'PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NEW;', []],
    ['when they are written', 'RETURN NEW;', ['SELECT pg_terminate_backend(pg_backend_pid())']],
  ])('when PostgreSQL goes away %s, with an error that says so', async (_, body, afterwards) => {
    const file = await fullTokenFile(temporaryDirectory())
    const url = await tampering('grants', body)
    const copied = copyStores([{ file, schema: { ...tokenCopy, afterwards }, url }], quietly)
    await expect(copied).rejects.toBeInstanceOf(StoreUnavailable)
    expect(await rowsIn(url, file)).toBe(0)
  })

  test('for both files when the second of them differs', async () => {
    const directory = temporaryDirectory()
    const [tokens, surveys] = [await fullTokenFile(directory), await fullSurveyFile(directory)]
    const url = await tampering('grants', 'NEW.last_used_at_ms := 0; RETURN NEW;')
    const jobs: Job[] = [
      { file: surveys, schema: surveyCopy, url },
      { file: tokens, schema: tokenCopy, url },
    ]
    await copyStores(jobs, quietly)
    expect([await rowsIn(url, tokens), await rowsIn(url, surveys)]).toEqual([0, 0])
  })
})

describe.each([tokenCopy, surveyCopy])('the tables of the $sqlite.name store', ({ sqlite, postgres, notCopied }) => {
  test('are all copied with every column, or are named as not copied', async () => {
    const db = openDatabase(':memory:')
    migrate(db, sqlite)
    const ofSqlite = db
      .prepare<[], { tab: string; col: string }>(
        `SELECT t.name AS tab, c.name AS col FROM sqlite_schema t, pragma_table_info(t.name) c WHERE t.type = 'table'`,
      )
      .all()
      .map(({ tab, col }) => `${tab}.${col}`)
    db.close()
    const url = await createDatabase()
    for (const migration of postgres.migrations) await query(url, migration.sql)
    const ofPostgres = await query(
      url,
      `SELECT table_name AS tab, column_name AS col, udt_name AS type FROM information_schema.columns
       WHERE table_schema = 'public'`,
    )
    const copied = ofPostgres.filter(({ tab }) => !(String(tab) in notCopied))
    const inPostgres = copied.map(({ tab, col }) => `${tab}.${col}`)
    expect(inPostgres.filter((column) => !POSTGRES_ONLY.includes(column)).sort()).toEqual(
      ofSqlite.filter((column) => !SQLITE_ONLY.includes(column)).sort(),
    )
    for (const { type } of copied) expect(() => kindOf(String(type))).not.toThrow()
    expect(ofPostgres.map(({ tab }) => tab)).toEqual(expect.arrayContaining(Object.keys(notCopied)))
  })
})
