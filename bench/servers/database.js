// SQLite for the peers, as durable as the product's: an answer's writes are on disk before it is sent.
import Database from 'better-sqlite3'

export function openDatabase(file, schema) {
  const db = new Database(file)
  db.pragma('journal_mode = WAL')
  db.pragma('synchronous = FULL')
  if (db.pragma('journal_mode', { simple: true }) !== 'wal' || db.pragma('synchronous', { simple: true }) !== 2) {
    throw new Error('SQLite is not as durable as demanded')
  }
  db.exec(schema)
  return db
}

/** Runs seeding in one transaction: one commit for all, since it is not what is measured. */
export async function together(db, work) {
  db.exec('BEGIN IMMEDIATE')
  try {
    const result = await work()
    db.exec('COMMIT')
    return result
  } catch (error) {
    db.exec('ROLLBACK')
    throw error
  }
}
