// What operators watch of the SQLite databases of a process: room on their disk, and the age of the last backup.
import { writeFileSync } from 'node:fs'
import { stat, statfs } from 'node:fs/promises'
import path from 'node:path'
import type { Config } from '../config.js'
import type { Mode } from './addresses.js'

export interface DatabaseFiles {
  /** By store. */
  readonly [store: string]: string
}

/** Those of a process of this mode. */
export function sqliteFilesOf(mode: Mode, { tokenDatabase, surveyDatabase, surveyProviderUrl }: Config): DatabaseFiles {
  const has = (part: Mode) => mode === 'all' || mode === part
  return {
    ...(has('token') && tokenDatabase.kind === 'sqlite' ? { token: tokenDatabase.file } : {}),
    ...(has('survey') && surveyDatabase.kind === 'sqlite' && !surveyProviderUrl ? { survey: surveyDatabase.file } : {}),
  }
}

/** Free bytes on the disk of each. */
export function diskFree(files: DatabaseFiles): Promise<Map<string, number>> {
  return ofEach(files, async (file) => {
    const { bavail, bsize } = await statfs(path.dirname(file))
    return bavail * bsize
  })
}

/** When the last backup of each ended or, before the first, when it was made, in ms since 1970. */
export function lastBackup(files: DatabaseFiles): Promise<Map<string, number>> {
  return ofEach(files, async (file) => {
    const marked = await stat(markOf(file)).catch(() => undefined)
    return marked ? marked.mtimeMs : (await stat(file)).birthtimeMs
  })
}

/** Remembers beside the database that a backup of it has ended just now. */
export function markBackedUp(file: string): void {
  writeFileSync(markOf(file), '', { mode: 0o600 })
}

const markOf = (file: string) => `${file}.backed-up`

/** A file that cannot be looked at is left out: why, readiness and the log say. */
async function ofEach(files: DatabaseFiles, look: (file: string) => Promise<number>): Promise<Map<string, number>> {
  const found = new Map<string, number>()
  for (const [store, file] of Object.entries(files)) {
    const value = await look(file).catch(() => undefined)
    if (value !== undefined) found.set(store, value)
  }
  return found
}
