import { randomUUID } from 'node:crypto'
import { describe, expect, onTestFinished, test } from 'vitest'
import type { Schema } from '../../services/storage/postgres/migrate.js'
import { openDatabase } from '../../services/storage/postgres/open.js'
import { openPostgresSurveyStore } from '../../services/survey/store/postgres/postgres-survey-store.js'
import { openPostgresTokenStore } from '../../services/token/store/postgres/postgres-token-store.js'
import { closing } from '../postgres/closing.js'
import { query } from '../postgres/cluster.js'
import { createDatabase } from '../postgres/shared-cluster.js'

test('of processes that start at the same time, one migrates and the others wait', async () => {
  // They collide in different places of the catalogue, so once is not enough.
  for (let round = 0; round < 8; round += 1) {
    const url = await createDatabase()
    const stores = await Promise.all(Array.from({ length: 6 }, () => openPostgresTokenStore({ url, poolSize: 2 })))
    await Promise.all(stores.map((store) => store.ping()))
    expect(await query(url, 'SELECT name, version FROM schema_versions')).toEqual([{ name: 'token', version: 1 }])
    await Promise.all(stores.map((store) => store.close()))
  }
})

test('both stores may share a database', async () => {
  const url = await createDatabase()
  const [tokens, surveys] = await Promise.all([openPostgresTokenStore({ url }), openPostgresSurveyStore({ url })])
  await Promise.all([closing(tokens).ping(), closing(surveys).ping()])
})

describe('a database that a newer program has migrated', () => {
  test('is used and left as it is', async () => {
    const url = await createDatabase()
    await (await openPostgresTokenStore({ url })).close()
    await query(url, `UPDATE schema_versions SET version = 7, usable_from = 1`)
    await closing(await openPostgresTokenStore({ url })).ping()
    expect(await query(url, 'SELECT version FROM schema_versions')).toEqual([{ version: 7 }])
  })

  test('is refused, and stays as it is, after a step for which this one knows too little', async () => {
    const url = await createDatabase()
    const [first, second] = [1, 2].map((version) => ({ version, name: '', sql: `CREATE TABLE t${version} (id text)` }))
    const last = { version: 3, name: 'contracts', sql: 'DROP TABLE t1', usableFrom: 2 }
    const knowing = (...migrations: unknown[]) => openDatabase({ url }, { name: 'test', migrations } as Schema)
    await (await knowing(first, second, last)).close()
    await expect(knowing(first)).rejects.toThrow(
      'the test database has schema version 3, which needs a program that knows 2; this one knows 1: run a newer program',
    )
    await (await knowing(first, second)).close()
    expect(await query(url, 'SELECT version, usable_from FROM schema_versions')).toEqual([
      { version: 3, usable_from: 2 },
    ])
  })
})

test('a migration keeps nobody waiting for long behind a table that is in use, and tries again', async () => {
  const url = await createDatabase()
  const create = { version: 1, name: 'first', sql: 'CREATE TABLE used (id text)' }
  const expand = { version: 2, name: 'next', sql: 'ALTER TABLE used ADD COLUMN more text' }
  await (await openDatabase({ url }, { name: 'test', migrations: [create] })).close()
  let isHeld = true
  const held = query(url, 'BEGIN; LOCK TABLE used IN ACCESS SHARE MODE; SELECT pg_sleep(3); COMMIT').then(() => {
    isHeld = false
  })
  await expect.poll(() => query(url, `SELECT FROM pg_locks WHERE relation = 'used'::regclass`)).toHaveLength(1)
  const migrated = openDatabase({ url }, { name: 'test', migrations: [create, expand] })
  const waits: number[] = []
  while (isHeld) {
    const startMs = performance.now()
    await query(url, 'SELECT id FROM used')
    waits.push(performance.now() - startMs)
  }
  await held
  await (await migrated).close()
  expect(Math.max(...waits)).toBeGreaterThan(250) // some did wait behind it
  expect(Math.max(...waits)).toBeLessThan(2_000) // the lock_timeout of requests
  await query(url, 'SELECT more FROM used')
})

describe.each(['token', 'survey'])('the %s store', (name) => {
  const open = (url: string): Promise<{ close(): Promise<void> }> =>
    name === 'token' ? openPostgresTokenStore({ url }) : openPostgresSurveyStore({ url })

  test.each(['LATIN1', 'EUC_CN', 'WIN1252'])(
    'refuses a database in %s, which cannot hold every text',
    async (encoding) => {
      const url = await createDatabase(`ENCODING '${encoding}' LOCALE 'C' TEMPLATE template0`)
      await expect(open(url)).rejects.toThrow(
        `the ${name} database has the encoding ${encoding}, which cannot hold every text; create one with ENCODING 'UTF8' TEMPLATE template0`,
      )
      expect(await query(url, `SELECT to_regclass('schema_versions') AS name`)).toEqual([{ name: null }])
    },
  )

  test.each(['UTF8', 'SQL_ASCII'])('takes a database in %s', async (encoding) => {
    const url = await createDatabase(`ENCODING '${encoding}' LOCALE 'C' TEMPLATE template0`)
    await (await open(url)).close()
  })

  test('says what to grant to a role that may not create its tables', async () => {
    const url = await createDatabase()
    const role = await createRole(url)
    const grant = `GRANT USAGE, CREATE ON SCHEMA public TO ${role.quoted}`
    await expect(open(role.url)).rejects.toThrow(
      `the role ${role.quoted} may not create the tables of the ${name} database; its owner can run there: ${grant}`,
    )
    await query(url, grant)
    await (await open(role.url)).close()
  })

  test('refuses tables that another role has made', async () => {
    const url = await createDatabase()
    await (await open(url)).close()
    const role = await createRole(url)
    await expect(open(role.url)).rejects.toThrow(
      `the role may not set up the ${name} database: permission denied for table schema_versions; its tables must belong to that role`,
    )
  })
})

/** A role without privileges of its own, and the address of the database for it. */
async function createRole(url: string) {
  const name = `Role ${randomUUID()}`
  await query(url, `CREATE ROLE "${name}" LOGIN PASSWORD 'canary'`)
  onTestFinished(async () => void (await query(url, `DROP OWNED BY "${name}"; DROP ROLE "${name}"`)))
  const address = new URL(url)
  address.username = name
  address.password = 'canary'
  return { url: address.href, quoted: `"${name}"` }
}

test('a migration, and waiting for one, may take longer than a request may', async () => {
  const url = await createDatabase()
  const slow: Schema = { name: 'slow', migrations: [{ version: 1, name: 'slow', sql: 'SELECT pg_sleep(1.2)' }] }
  const options = { url, statementTimeoutMs: 500, lockTimeoutMs: 500 } // the client waits for 500 ms more
  const databases = await Promise.all([openDatabase(options, slow), openDatabase(options, slow)])
  for (const database of databases) await database.close()
  expect(await query(url, 'SELECT name, version FROM schema_versions')).toEqual([{ name: 'slow', version: 1 }])
})

test('a migration that fails leaves nothing behind', async () => {
  const url = await createDatabase()
  const broken: Schema = {
    name: 'broken',
    migrations: [
      { version: 1, name: 'good', sql: 'CREATE TABLE half (id text)' },
      { version: 2, name: 'bad', sql: 'CREATE TABLE other (id text); SELECT nonsense' },
    ],
  }
  await expect(openDatabase({ url }, broken)).rejects.toThrow('nonsense')
  expect(await query(url, `SELECT to_regclass('half') AS half, to_regclass('other') AS other`)).toEqual([
    { half: null, other: null },
  ])
})

test('an up-to-date database is opened without the right to create tables', async () => {
  const url = await createDatabase()
  await (await openPostgresTokenStore({ url })).close()
  const role = new URL(url).pathname.slice(1)
  await query(url, `CREATE ROLE ${role} LOGIN; REVOKE CREATE ON SCHEMA public FROM PUBLIC`)
  await query(url, `GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO ${role}`)
  const store = closing(await openPostgresTokenStore({ url: url.replace('postgres@', `${role}@`) }))
  await store.ping()
})
