// Vitest's global setup: one PostgreSQL for the whole run, started when the first test asks for a database. Tests run in
// processes of their own, so they ask over HTTP.
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { TestProject } from 'vitest/node'
import { openPostgresSurveyStore } from '../../services/survey/store/postgres/postgres-survey-store.js'
import { openPostgresTokenStore } from '../../services/token/store/postgres/postgres-token-store.js'
import { Cluster, query } from './cluster.js'

const TEMPLATE = 'migrated'

declare module 'vitest' {
  export interface ProvidedContext {
    /**
     * A GET here is answered with the address of a database: `/` of one to administer the server from, `/migrated` of a
     * template with the schema of both stores and a little more, to which nobody must connect.
     */
    sharedPostgres: string
  }
}

export async function setup(project: TestProject): Promise<() => Promise<void>> {
  let cluster: Promise<Cluster> | undefined
  let template: Promise<string> | undefined
  const answer = async (target: string | undefined) => {
    cluster ??= Cluster.create({ autovacuum: 'off' }) // it would visit a new database every moment
    if (target !== '/migrated') return (await cluster).urlOf('postgres')
    template ??= cluster.then(createTemplate)
    return template
  }
  const server = createServer((request, response) => {
    answer(request.url).then(
      (url) => response.end(url),
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

async function createTemplate(cluster: Cluster): Promise<string> {
  await query(cluster.urlOf('postgres'), `CREATE DATABASE ${TEMPLATE}`)
  const url = cluster.urlOf(TEMPLATE)
  for (const open of [openPostgresTokenStore, openPostgresSurveyStore]) await (await open({ url })).close()
  await query(url, EXPANDED)
  return url
}

/** Every table has a column more, as the next version may add: no statement may mind. */
const EXPANDED = `
  DO $$ DECLARE name regclass; BEGIN
    FOR name IN SELECT oid FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace
    LOOP EXECUTE 'ALTER TABLE ' || name || ' ADD COLUMN of_the_next_version text'; END LOOP;
  END $$`
