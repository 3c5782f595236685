// SQLite for the peers, as durable as the product's: an answer's writes are on disk before it is sent.
import { Database } from '../../../dist/services/storage/sqlite/driver.js'

export function openDatabase(file, schema) {
  const db = new Database(file)
  db.pragma('journal_mode = WAL')
  db.pragma('synchronous = FULL')
  if (db.pragma('journal_mode', { simple: true }) !== 'wal' || db.pragma('synchronous', { simple: true }) !== 2) {
    throw new Error('SQLite is not as durable as demanded')
  }
  db.exec(schema)
  return {
    /** A statement that returns its first row. */
    read(text) {
      const statement = db.prepare(text)
      return (...values) => statement.get(...values)
    },
    /** A statement that returns how many rows it changed. */
    write(text) {
      const statement = db.prepare(text)
      return (...values) => statement.run(...values).changes
    },
    transaction: (steps) => db.transaction(steps),
    /** Runs `work` in one transaction. */
    async together(work) {
      db.exec('BEGIN IMMEDIATE')
      try {
        const result = await work()
        db.exec('COMMIT')
        return result
      } catch (error) {
        db.exec('ROLLBACK')
        throw error
      }
    },
  }
}
