import { randomUUID } from 'node:crypto'
import pg from 'pg'
import { inject, onTestFinished } from 'vitest'
import { query } from './cluster.js'

/** Creates an empty database on the run's shared server; returns its address. It is removed with the server. `options` are SQL. */
export async function createDatabase(options = ''): Promise<string> {
  const server = await addressOf('/')
  const name = newName()
  await query(server, `CREATE DATABASE ${name} ${options}`)
  return new URL(name, server).href
}

export interface BorrowedDatabase {
  readonly url: string
  /** To be called when nobody uses it any more: whoever borrows next may get it, empty. */
  giveBack(): Promise<void>
}

/** Emptying a database takes a tenth of the time of making one, so each is used many times. */
const unused: { readonly url: string; readonly client: pg.Client }[] = []

/** A database with the schema of both stores, each table with a column more. Its schema must not be changed: others get it later. */
export async function borrowMigratedDatabase(): Promise<BorrowedDatabase> {
  const { url, client } = unused.pop() ?? (await copyTemplate())
  return {
    url,
    async giveBack() {
      await client.query(EMPTY)
      unused.push({ url, client })
    },
  }
}

/** The same, given back when the test is over. */
export async function migratedDatabase(): Promise<string> {
  const { url, giveBack } = await borrowMigratedDatabase()
  onTestFinished(giveBack)
  return url
}

/** Leaves what migrations write. Fails when a test has left the table of surveys renamed. */
const EMPTY = `
  DO $$ DECLARE name regclass; BEGIN
    SET LOCAL session_replication_role = replica; -- without foreign keys any order will do
    FOR name IN SELECT oid FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace
      AND relname NOT IN ('schema_versions', 'survey_ids')
    LOOP EXECUTE 'DELETE FROM ' || name; END LOOP;
    UPDATE survey_ids SET highest_id = 0;
    DELETE FROM schema_versions WHERE schema_versions.name NOT IN ('token', 'survey');
    ASSERT to_regclass('surveys') IS NOT NULL;
    PERFORM pg_stat_reset(); -- some tests count deadlocks
  END $$`

/** Faster than migrating. */
async function copyTemplate() {
  const server = await addressOf('/')
  const template = new URL(await addressOf('/migrated')).pathname.slice(1)
  const name = newName()
  await query(server, `CREATE DATABASE ${name} TEMPLATE ${template}`)
  const url = new URL(name, server).href
  const client = new pg.Client(url)
  client.on('error', () => undefined) // it ends with the server
  await client.connect()
  return { url, client }
}

function newName(): string {
  return `test_${randomUUID().replaceAll('-', '')}`
}

/** global-setup.ts starts the server, and creates each database, when it is first asked. */
async function addressOf(target: '/' | '/migrated'): Promise<string> {
  const answer = await fetch(new URL(target, inject('sharedPostgres')))
  const text = await answer.text()
  if (!answer.ok) throw new Error(text)
  return text
}
