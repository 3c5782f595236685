// Who owns a file, in words.
import { existsSync, readFileSync, statSync } from 'node:fs'
import path from 'node:path'

/** Owner of a file, or else of the nearest directory above it that this user may look at. */
export function ownerOf(file: string): number {
  try {
    return statSync(file).uid
  } catch (error) {
    const directory = path.dirname(file)
    if (directory === file) throw error
    return ownerOf(directory)
  }
}

const USERS = '/etc/passwd'

/** The name of a user; the number of one that is not in that file. */
export function userName(uid: number): string {
  const rows = existsSync(USERS) ? readFileSync(USERS, 'utf8').split('\n') : []
  const [name] = rows.map((row) => row.split(':')).find(([, , id]) => id === String(uid)) ?? []
  return name ?? `uid ${uid}`
}
