import { mkdirSync, statSync } from 'node:fs'
import { dirname } from 'node:path'

/**
 * Makes it and what is missing above it, for their owner alone; one that exists keeps its mode. Step by step, because
 * Node's `recursive` tries for ever where the system says that what was just made is not there, as it does in /proc.
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
