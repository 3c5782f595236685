// The files that belong to a SQLite database: SQLite removes or overwrites what it finds under their names.
import type { Database } from './settings.js'

const SUFFIXES = ['', '-wal', '-shm', '-journal']

/** Whether `file`, an absolute path, is the database or belongs to it. */
export function isOfDatabase(file: string, database: Database | undefined): boolean {
  return database?.kind === 'sqlite' && SUFFIXES.some((suffix) => file === database.file + suffix)
}
