// A JSON file that a variable names.
import { readFileSync } from 'node:fs'
import { ConfigError } from './config.js'
import { errorCode } from './error-code.js'
import { DuplicateMember, parseExactly } from './exact-json.js'

/** What the file holds, and one problem of the variable for each fault that is found in it. */
export interface JsonFile {
  readonly content: unknown
  readonly faulty: (faults: readonly string[]) => ConfigError
}

/** @throws ConfigError when there is no JSON in it, in which no member is given twice */
export function readJsonFile(variable: string, file: string): JsonFile {
  const wrong = (messages: readonly string[]) => new ConfigError(messages.map((message) => ({ variable, message })))
  const faulty = (faults: readonly string[]) => wrong(faults.map((fault) => `names a file with a fault: ${fault}`))
  try {
    return { content: parseExactly(new TextDecoder('utf-8', { fatal: true }).decode(readBytes(file))), faulty }
  } catch (error) {
    if (error instanceof DuplicateMember) throw wrong([`names a file in which ${error.message}`])
    throw wrong([`names a file that ${error instanceof CannotRead ? error.message : 'is not JSON in UTF-8'}`])
  }
}

/** The message says why, with the file and the system's code. */
export class CannotRead extends Error {}

/** @throws CannotRead */
export function readBytes(file: string): Buffer {
  try {
    return readFileSync(file)
  } catch (error) {
    throw new CannotRead(`cannot be read: ${file} (${errorCode(error, 'unknown')})`)
  }
}
