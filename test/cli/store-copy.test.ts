// The move from SQLite to PostgreSQL as operators make it.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync } from 'node:fs'
import path from 'node:path'
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import { fullTokenFile } from '../copy/full-stores.js'
import { grantAccessOn, type SpawnedAccess } from '../harness/access.js'
import { freePort } from '../harness/free-port.js'
import { send } from '../harness/http.js'
import { createProcess, ServiceProcess, startProcess } from '../harness/process.js'
import { PROGRAM } from '../harness/spawn.js'
import { authorizePath, CALLBACK, withQuery } from '../harness/verbs.js'
import { Visitor } from '../harness/visitor.js'
import { query } from '../postgres/cluster.js'
import { createDatabase } from '../postgres/shared-cluster.js'

vi.setConfig({ testTimeout: 120_000 }) // each test spawns several processes

async function get(service: ServiceProcess, target: string, parameters: Record<string, string>) {
  const { text } = await send(service.url, withQuery(target, parameters))
  return JSON.parse(text) as { code: string; data: Record<string, unknown> }
}

function exchange(service: ServiceProcess, { appid, secret }: SpawnedAccess, code: string) {
  return get(service, '/api/oauth2/access_token', { appid, secret, code, grant_type: 'authorization_code' })
}

/** Signs in with the password that grantAccessOn gives everybody. */
async function newCode(service: ServiceProcess, { appid, secret }: SpawnedAccess): Promise<string> {
  const visitor = new Visitor(service.url)
  const app = { appid, secret, secretId: '', redirectUri: CALLBACK }
  const page = await visitor.openSignedIn(authorizePath(app), { username: 'ana', password: 'correct horse' })
  const reply = await visitor.decide(page, 'confirm')
  return new URL(reply.headers.get('location') ?? '').searchParams.get('code') ?? ''
}

/** A process on another's data directory. */
async function another(dataDir: string, env: Record<string, string>): Promise<ServiceProcess> {
  const service = new ServiceProcess(dataDir, await freePort(), env)
  onTestFinished(() => service.kill())
  return service
}

/** A stopped service whose token database has every kind of row. */
async function filledProcess(env: Record<string, string> = {}): Promise<ServiceProcess> {
  const service = await createProcess(env)
  await fullTokenFile(service.dataDir)
  return service
}

describe('store copy', () => {
  test('moves a service: tokens, codes with what was consented to, secrets, passwords and surveys work on PostgreSQL', async () => {
    const before = await startProcess()
    const access = await grantAccessOn(before, ['午餐 问卷', 'Team lunch'])
    await before.json(['app', 'update', access.appid, '--reads-answers'])
    const code = await newCode(before, access)
    await before.stop()
    const url = await createDatabase()
    const env = { TOKEN_DATABASE_URL: url, SURVEY_DATABASE_URL: url }
    const { exitCode, stderr, stdout } = await before.cli(['store', 'copy'], { env })
    expect({ exitCode, stderr }).toEqual({ exitCode: 0, stderr: '' })
    expect(stdout).toMatch(/^token +grants +1 +yes$/m)
    expect(stdout).toMatch(/^survey +surveys +2 +yes$/m)

    const after = await another(before.dataDir, env)
    await after.start()
    const { appid, openid, accessToken, refreshToken } = access
    const call = { appid, access_token: accessToken, openid }
    expect((await get(after, '/api/oauth2/user', call)).code).toBe('OK')
    const { data } = await get(after, '/api/surveys', call)
    const list = data.list as { id: number; title: string }[]
    expect(list.map(({ id, title }) => `${id} ${title}`)).toEqual(access.surveys)
    const refresh = { appid, refresh_token: refreshToken, grant_type: 'refresh_token' }
    expect((await get(after, '/api/oauth2/refresh_token', refresh)).code).toBe('OK')
    const issuedBefore = await exchange(after, access, code)
    expect(issuedBefore).toMatchObject({ code: 'OK', data: { openid } })
    expect(await after.json(['app', 'show', appid])).toMatchObject({ reads_answers: true })
    const consent = { consent_version: expect.stringMatching(/^[0-9a-f]{12}$/), answers_read_at: null }
    expect(await after.json(['grant', 'list'])).toMatchObject([
      { ...consent, permissions: ['read_answers'] },
      { ...consent, permissions: [] },
    ])
    expect(await exchange(after, access, await newCode(after, access))).toMatchObject({ code: 'OK', data: { openid } })
    expect((await exchange(after, access, code)).code).toBe('InvalidArgument')
  })

  test('--json prints database, table, rows and verified of every table', async () => {
    const service = await filledProcess({ TOKEN_DATABASE_URL: await createDatabase() })
    const reports = await service.json<Record<string, unknown>[]>(['store', 'copy'])
    expect(reports.length).toBeGreaterThan(5)
    for (const report of reports) {
      expect(report).toEqual({
        database: 'token',
        table: expect.stringMatching(/^[a-z_]+$/),
        rows: expect.any(Number),
        verified: true,
      })
    }
  })

  test('copies each file to the database that its own variable names', async () => {
    const service = await createProcess()
    await service.run(['migrate'])
    const [tokens, surveys] = [await createDatabase(), await createDatabase()]
    const env = { TOKEN_DATABASE_URL: tokens, SURVEY_DATABASE_URL: surveys }
    expect((await service.run(['store', 'copy'], { env })).exitCode).toBe(0)
    for (const [url, name] of [
      [tokens, 'token'],
      [surveys, 'survey'],
    ] as const) {
      expect(await query(url, 'SELECT name FROM schema_versions')).toEqual([{ name }])
    }
  })

  test('is refused while the service runs, and exits 1 with the reason', async () => {
    const service = await startProcess()
    const env = { TOKEN_DATABASE_URL: await createDatabase() }
    const { exitCode, stdout, stderr } = await service.run(['store', 'copy'], { env })
    expect({ exitCode, stdout }).toEqual({ exitCode: 1, stdout: '' })
    expect(stderr).toMatch(/\.db is in use.*\nstop the service first/)
  })

  test('of a table that PostgreSQL changed is rolled back: exit 1, and both counts', async () => {
    const url = await createDatabase()
    const service = await filledProcess({ TOKEN_DATABASE_URL: url })
    await service.run(['migrate'])
    await query(
      url,
      `CREATE FUNCTION skip() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
       CREATE TRIGGER skip BEFORE INSERT ON sessions FOR EACH ROW EXECUTE FUNCTION skip()`,
    )
    const { exitCode, stdout, stderr } = await service.run(['store', 'copy'])
    expect(exitCode).toBe(1)
    expect(stdout).toMatch(/^token +sessions +2 +no$/m)
    expect(stderr).toContain('sessions: 2 rows in SQLite, 0 in PostgreSQL')
    expect(stderr).toContain('it was rolled back')
    expect(await query(url, 'SELECT appid FROM apps')).toEqual([])
  })

  test('that is interrupted leaves the target empty, and works the next time', async () => {
    const url = await createDatabase()
    const service = await filledProcess({ TOKEN_DATABASE_URL: url })
    await service.run(['migrate'])
    const slow =
      'CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(60); RETURN NEW; END $$'
    await query(url, slow)
    await query(url, 'CREATE TRIGGER slow BEFORE INSERT ON grants FOR EACH ROW EXECUTE FUNCTION slow()')
    const env = { PATH: process.env.PATH ?? '', DATA_DIR: service.dataDir, TOKEN_DATABASE_URL: url }
    const child = spawn(process.execPath, [PROGRAM, 'store', 'copy'], { env, stdio: 'ignore' })
    const inserting = `FROM pg_stat_activity WHERE datname = current_database() AND query LIKE '%INTO "grants"%'`
    const others = `${inserting} AND pid <> pg_backend_pid()`
    await vi.waitFor(async () => expect(await query(url, `SELECT 1 ${others}`)).toHaveLength(1), { timeout: 60_000 })
    child.kill('SIGINT')
    await once(child, 'exit')
    await query(url, `SELECT pg_terminate_backend(pid) ${others}`) // otherwise it would go on sleeping before it noticed
    expect(await query(url, 'SELECT appid FROM apps')).toEqual([])
    await query(url, 'DROP TRIGGER slow ON grants')
    expect((await service.run(['store', 'copy'])).exitCode).toBe(0)
  })

  test.each([
    ['without anywhere to copy to', '', 1, /there is nothing to copy in .*\nset DATA_DIR, and TOKEN_DATABASE_URL/],
    ['to a server that is not there', 'postgres://u@127.0.0.1:1/d', 69, /unavailable/],
  ])('%s is refused with the exit code of its reason', async (_, url, expected, reason) => {
    const service = await filledProcess()
    const { exitCode, stdout, stderr } = await service.run(['store', 'copy'], { env: { TOKEN_DATABASE_URL: url } })
    expect({ exitCode, stdout }).toEqual({ exitCode: expected, stdout: '' })
    expect(stderr).toMatch(reason)
  })

  test('of an empty directory has nothing to copy', async () => {
    const service = await createProcess()
    mkdirSync(path.join(service.dataDir, 'empty'))
    const env = { DATA_DIR: path.join(service.dataDir, 'empty'), TOKEN_DATABASE_URL: 'postgres://h/d' }
    const { exitCode, stderr } = await service.run(['store', 'copy'], { env })
    expect(exitCode).toBe(1)
    expect(stderr).toContain('there is nothing to copy in')
  })
})

test('migrate shows the versions on PostgreSQL too, from 0 where there was no schema', async () => {
  const url = await createDatabase()
  const service = await createProcess({ TOKEN_DATABASE_URL: url, SURVEY_DATABASE_URL: url })
  const versions = (token: number, survey: number) => [
    { database: 'token', file: 'PostgreSQL', from_version: token, to_version: 1 },
    { database: 'survey', file: 'PostgreSQL', from_version: survey, to_version: 1 },
  ]
  expect(await service.json(['migrate'])).toEqual(versions(0, 0))
  expect(await service.json(['migrate'])).toEqual(versions(1, 1))
  expect((await service.run(['migrate'])).stdout).toMatch(/token +1 +1 +PostgreSQL\nsurvey +1 +1 +PostgreSQL\n/)
})
