// What tests do to the databases of a service behind its back.
import path from 'node:path'
import pg from 'pg'
import { Database } from '../../services/storage/sqlite/driver.js'

export interface Sabotage {
  /** Blocks the writes of exchanges and refreshes, while reads go on, until the returned function is called. */
  holdTokenWrites(): Promise<() => Promise<void>>
  /** Renames the table of surveys, so that every query about surveys fails unexpectedly, until the returned function is called. */
  hideSurveys(): Promise<() => Promise<void>>
}

const HIDE_SURVEYS = 'ALTER TABLE surveys RENAME TO gone'
const SHOW_SURVEYS = 'ALTER TABLE gone RENAME TO surveys'

/** Sabotages token.db and survey.db in a directory. */
export function sqliteSabotage(dataDir: string): Sabotage {
  return {
    async holdTokenWrites() {
      const lock = new Database(path.join(dataDir, 'token.db'))
      lock.exec('BEGIN IMMEDIATE')
      return async () => {
        lock.exec('ROLLBACK')
        lock.close()
      }
    },
    async hideSurveys() {
      const saboteur = new Database(path.join(dataDir, 'survey.db'))
      saboteur.exec(HIDE_SURVEYS)
      return async () => {
        saboteur.exec(SHOW_SURVEYS)
        saboteur.close()
      }
    },
  }
}

/** Sabotages the PostgreSQL database that both stores share. */
export function postgresSabotage(url: string): Sabotage {
  const connected = async () => {
    const client = new pg.Client(url)
    await client.connect()
    return client
  }
  return {
    async holdTokenWrites() {
      const lock = await connected()
      await lock.query('BEGIN; LOCK TABLE apps IN EXCLUSIVE MODE') // its rows can be read, but not locked
      return () => lock.end()
    },
    async hideSurveys() {
      const saboteur = await connected()
      await saboteur.query(HIDE_SURVEYS)
      return async () => {
        await saboteur.query(SHOW_SURVEYS)
        await saboteur.end()
      }
    },
  }
}
