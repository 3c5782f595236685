import { randomUUID } from 'node:crypto'
import { openDatabase } from '../../services/storage/postgres/open.js'
import type { Database } from '../../services/storage/postgres/transaction.js'
import { closing } from './closing.js'
import { patient } from './patient.js'

/** A database without a schema, for a test's own statements; closed when the test is over. */
export async function openBare(url: string): Promise<Database> {
  return closing(await openDatabase({ url, ...patient }, { name: `none ${randomUUID()}`, migrations: [] }))
}
