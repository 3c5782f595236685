import { randomUUID } from 'node:crypto'
import { type Database, openDatabase } from '../../services/postgres/transaction.js'
import { closing } from './closing.js'
import { patient } from './patient.js'

/** A database without a schema of its own, for statements of the test; closed with it. */
export async function openBare(url: string): Promise<Database> {
  return closing(await openDatabase({ url, ...patient }, { name: `none ${randomUUID()}`, migrations: [] }))
}
