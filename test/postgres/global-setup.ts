// Vitest's global setup: one PostgreSQL for the whole run, started when the first test asks for a database. Tests run in
// processes of their own, so they ask over HTTP.
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { TestProject } from 'vitest/node'
import { Cluster } from './cluster.js'

declare module 'vitest' {
  export interface ProvidedContext {
    /** Where a GET is answered with the port of the PostgreSQL that all tests share. */
    sharedPostgres: string
  }
}

export async function setup(project: TestProject): Promise<() => Promise<void>> {
  let cluster: Promise<Cluster> | undefined
  const server = createServer((_request, response) => {
    cluster ??= Cluster.create()
    cluster.then(
      ({ port }) => response.end(String(port)),
      (error: unknown) => response.writeHead(500).end(String(error)),
    )
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const address = server.address()
  const port = typeof address === 'object' && address !== null ? address.port : 0
  project.provide('sharedPostgres', `http://127.0.0.1:${port}/`)
  return async () => {
    server.close()
    await (await cluster?.catch(() => undefined))?.destroy()
  }
}
