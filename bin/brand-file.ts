// BRAND_FILE: the platform's name, logo, colour, links and texts.
import path from 'node:path'
import { type Brand, readBrand } from '../gateway/pages/brand.js'
import { logoOf } from '../services/token/logo.js'
import { readBytes, readJsonFile } from './json-file.js'

/** Undefined when there is no file. @throws ConfigError that names all that is wrong with the file and its logo. */
export function readBrandFile(file: string): Brand | undefined {
  if (file === '') return undefined
  const { content, faulty } = readJsonFile('BRAND_FILE', file)
  const read = readBrand(content, (logo) => logoOf(readBytes(path.resolve(path.dirname(file), logo))))
  if ('brand' in read) return read.brand
  throw faulty(read.faults)
}
