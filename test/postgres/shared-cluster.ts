import { randomUUID } from 'node:crypto'
import { inject } from 'vitest'
import { query } from './cluster.js'

/** Creates an empty database on the run's shared server; returns its address. It is removed with the server. */
export async function createDatabase(): Promise<string> {
  const server = await addressOf('/')
  const name = newName()
  await query(server, `CREATE DATABASE ${name}`)
  return new URL(name, server).href
}

export interface MigratedDatabase {
  readonly url: string
  /** To be called when nobody is connected any more; a run makes so many databases that they would fill the disk. */
  drop(): Promise<void>
}

/** The same with the schema of both stores, copied from a template, which is faster than migrating. */
export async function createMigratedDatabase(): Promise<MigratedDatabase> {
  const server = await addressOf('/')
  const template = new URL(await addressOf('/migrated')).pathname.slice(1)
  const name = newName()
  await query(server, `CREATE DATABASE ${name} TEMPLATE ${template}`)
  return {
    url: new URL(name, server).href,
    async drop() {
      await query(server, `DROP DATABASE ${name}`)
    },
  }
}

function newName(): string {
  return `test_${randomUUID().replaceAll('-', '')}`
}

/** global-setup.ts starts the server, and creates each database, when it is first asked. */
async function addressOf(target: '/' | '/migrated'): Promise<string> {
  const answer = await fetch(new URL(target, inject('sharedPostgres')))
  const text = await answer.text()
  if (!answer.ok) throw new Error(text)
  return text
}
