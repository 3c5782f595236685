import { expect, test } from 'vitest'
import type { Schema } from '../../services/postgres/migrate.js'
import { openDatabase } from '../../services/postgres/transaction.js'
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

test('a newer database is refused, and its content stays', async () => {
  const url = await createDatabase()
  await (await openPostgresTokenStore({ url })).close()
  await query(url, `UPDATE schema_versions SET version = 7 WHERE name = 'token'`)
  await expect(openPostgresTokenStore({ url })).rejects.toThrow(
    'the token database has schema version 7, this program knows 1: run a newer program',
  )
  expect(await query(url, 'SELECT version FROM schema_versions')).toEqual([{ version: 7 }])
})

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
