import { randomUUID } from 'node:crypto'
import { inject } from 'vitest'
import { query, urlOf } from './cluster.js'

/** An empty database of the run's shared server; its address. It goes with the server when the run is over. */
export async function createDatabase(): Promise<string> {
  const port = await sharedPort()
  const name = `test_${randomUUID().replaceAll('-', '')}`
  await query(urlOf(port, 'postgres'), `CREATE DATABASE ${name}`)
  return urlOf(port, name)
}

/** global-setup.ts starts the server when it is first asked. */
async function sharedPort(): Promise<number> {
  const answer = await fetch(inject('sharedPostgres'))
  const text = await answer.text()
  if (!answer.ok) throw new Error(text)
  return Number(text)
}
