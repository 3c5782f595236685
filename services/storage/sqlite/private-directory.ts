import { mkdirSync, statSync } from 'node:fs'
import { dirname } from 'node:path'

/**
 * Creates the directory and its missing parents, for their owner only; an existing one keeps its mode. Step by step, because
 * Node's `recursive` retries forever where the system says that a directory just created does not exist, as it does in /proc.
 * @throws the system's error
 */
export function makeDirectories(directory: string): void {
  try {
    makeDirectory(directory)
  } catch (error) {
    const parent = dirname(directory)
    if (!isMissing(error) || parent === directory) throw error
    makeDirectories(parent)
    makeDirectory(directory)
  }
}

function makeDirectory(directory: string): void {
  try {
    mkdirSync(directory, { mode: 0o700 })
  } catch (error) {
    if (!statSync(directory, { throwIfNoEntry: false })?.isDirectory()) throw error
  }
}

function isMissing(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === 'ENOENT'
}
