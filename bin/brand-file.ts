// BRAND_FILE: the platform's name, logo, colour, links and texts.
import { readFileSync } from 'node:fs'
import path from 'node:path'
import { type Brand, readBrand } from '../gateway/pages/brand.js'
import { ConfigError } from './config.js'
import { errorCode } from './error-code.js'
import { DuplicateMember, parseExactly } from './exact-json.js'

/** Undefined when there is no file. @throws ConfigError that names all that is wrong with the file and its logo. */
export function readBrandFile(file: string): Brand | undefined {
  if (file === '') return undefined
  const read = readBrand(contentOf(file), (logo) => readFrom(path.resolve(path.dirname(file), logo)))
  if ('brand' in read) return read.brand
  throw wrong(read.faults.map((fault) => `names a file with a fault: ${fault}`))
}

function contentOf(file: string): unknown {
  try {
    return parseExactly(new TextDecoder('utf-8', { fatal: true }).decode(readFrom(file)))
  } catch (error) {
    if (error instanceof DuplicateMember) throw wrong([`names a file in which ${error.message}`])
    throw wrong([`names a file that ${error instanceof CannotRead ? error.message : 'is not JSON in UTF-8'}`])
  }
}

class CannotRead extends Error {}

function readFrom(file: string): Buffer {
  try {
    return readFileSync(file)
  } catch (error) {
    throw new CannotRead(`cannot be read: ${file} (${errorCode(error, 'unknown')})`)
  }
}

function wrong(messages: readonly string[]): ConfigError {
  return new ConfigError(messages.map((message) => ({ variable: 'BRAND_FILE', message })))
}
