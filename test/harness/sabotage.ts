// What tests do to the databases of a service behind its back.
import path from 'node:path'
import pg from 'pg'
import { Database } from '../../services/sqlite/driver.js'

export interface Sabotage {
  /** No exchange and no refresh can be written, while reads go on, until what it returns is called. */
  holdTokenWrites(): Promise<() => Promise<void>>
  /** Renames the table of surveys, so that every question about surveys fails in a way nobody foresaw. */
  hideSurveys(): Promise<void>
}

const HIDE_SURVEYS = 'ALTER TABLE surveys RENAME TO gone'

/** Of token.db and survey.db in a directory. */
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
      saboteur.close()
    },
  }
}

/** Of the PostgreSQL database that both stores share. */
export function postgresSabotage(url: string): Sabotage {
  const connected = async () => {
    const client = new pg.Client(url)
    await client.connect()
    return client
  }
  return {
    async holdTokenWrites() {
      const lock = await connected()
      await lock.query('BEGIN; LOCK TABLE apps IN EXCLUSIVE MODE') // no row of it can be locked, and each can be read
      return () => lock.end()
    },
    async hideSurveys() {
      const saboteur = await connected()
      await saboteur.query(HIDE_SURVEYS)
      await saboteur.end()
    },
  }
}
