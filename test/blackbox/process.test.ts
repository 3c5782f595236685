// The service as operators run it: spawned, stopped, killed, restarted, and managed with the command line.
import { readdirSync, readFileSync, statSync } from 'node:fs'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { beforeAll, describe, expect, test } from 'vitest'
import { Database } from '../../services/storage/sqlite/driver.js'
import { freePort } from '../harness/free-port.js'
import { send, sendAndLeave } from '../harness/http.js'
import { openProcess, type ServiceProcess, startProcess } from '../harness/process.js'
import { smallSurvey } from '../harness/sample-surveys.js'
import { authorizePath, type TestApp, withQuery } from '../harness/verbs.js'
import { decisionForm, formWith, Visitor } from '../harness/visitor.js'

const REDIRECT_URI = 'https://app.example/callback'
const TIMEOUT_MS = 180_000

interface Person {
  readonly username: string
  readonly password: string
}

async function createApp(service: ServiceProcess): Promise<TestApp> {
  const args = ['app', 'create', '--name', 'Canary app', '--redirect-uri', REDIRECT_URI]
  const { appid, secret } = await service.json<{ appid: string; secret: string }>(args)
  return { appid, secret, secretId: '', redirectUri: REDIRECT_URI }
}

function personNamed(username: string): Person {
  return { username, password: 'canary-password-93d1' }
}

let users = 0

async function createUser(
  service: ServiceProcess,
  { username, password } = personNamed(`user${++users}`),
): Promise<Person> {
  const args = ['user', 'create', '--username', username, '--password-stdin', '--nickname', 'Ming']
  const created = await service.json<{ user_id: string }>(args, { input: `${password}\n` })
  expect(created.user_id).toMatch(/\S/)
  return { username, password }
}

interface Body {
  readonly code: string
  readonly error: { readonly type: string }
  readonly data: Readonly<Record<string, unknown>>
}

async function get(service: ServiceProcess, target: string, query: Record<string, string>): Promise<Body> {
  const { text } = await send(service.url, withQuery(target, query))
  return JSON.parse(text) as Body
}

async function issueCode(
  service: ServiceProcess,
  app: TestApp,
  person: Person,
  state?: string,
  visitor = new Visitor(service.url),
) {
  const page = await visitor.openSignedIn(authorizePath(app, state), person)
  const reply = await visitor.decide(page, 'confirm')
  expect(reply.status).toBe(303)
  return new URL(reply.headers.get('location') ?? '').searchParams.get('code') ?? ''
}

function exchange(service: ServiceProcess, { appid, secret }: TestApp, code: string): Promise<Body> {
  return get(service, '/api/oauth2/access_token', { appid, secret, code, grant_type: 'authorization_code' })
}

function profile(
  service: ServiceProcess,
  { appid }: TestApp,
  tokens: Readonly<Record<string, unknown>>,
): Promise<Body> {
  return get(service, '/api/oauth2/user', {
    appid,
    access_token: String(tokens.access_token),
    openid: String(tokens.openid),
  })
}

const ming = personNamed('ming')

describe('a spawned service', () => {
  test('counts replays of codes by their effect', { timeout: TIMEOUT_MS }, async () => {
    const adminPort = await freePort()
    const service = await startProcess({ ADMIN_PORT: String(adminPort), CODE_REPLAY_GRACE_SECONDS: '5' })
    const app = await createApp(service)
    await createUser(service, ming)
    const code = await issueCode(service, app, ming)
    const { data: tokens } = await exchange(service, app, code)
    await exchange(service, app, code)
    await exchange(service, app, 'sac_nobody')
    await exchange(service, await createApp(service), code)
    expect((await profile(service, app, tokens)).code).toBe('OK')
    await sleep(5_100)
    await exchange(service, app, code)
    expect((await profile(service, app, tokens)).error.type).toBe('invalid_token')
    const metrics = await (await fetch(`http://127.0.0.1:${adminPort}/metrics`)).text()
    const counts = metrics.split('\n').filter((line) => line.startsWith('survey_auth_replayed_codes_total{'))
    expect(counts.toSorted()).toEqual([
      'survey_auth_replayed_codes_total{effect="already_revoked"} 0',
      'survey_auth_replayed_codes_total{effect="forgiven"} 1',
      'survey_auth_replayed_codes_total{effect="revoked_grant"} 1',
      'survey_auth_replayed_codes_total{effect="too_late"} 0',
    ])
  })

  test('does nothing for clients that left while it was suspended: their codes stay good', {
    timeout: TIMEOUT_MS,
  }, async () => {
    const service = await startProcess()
    const app = await createApp(service)
    await createUser(service, ming)
    const visitor = new Visitor(service.url)
    const newcomer = new Visitor(service.url)
    const { data: tokens } = await exchange(service, app, await issueCode(service, app, ming, undefined, visitor))
    const code = await issueCode(service, app, ming, undefined, visitor)
    const consent = await visitor.openSignedIn(authorizePath(app), ming)
    const signIn = await newcomer.open(authorizePath(app))
    const [password, decision] = [formWith(signIn, 'password'), decisionForm(consent)]
    if (!password) throw new Error('no sign-in form')
    const before = await service.json<readonly object[]>(['audit', 'list'])

    const { appid, secret } = app
    const of = { appid, secret, code, grant_type: 'authorization_code' }
    const refresh = { appid, refresh_token: String(tokens.refresh_token), grant_type: 'refresh_token' }
    service.signal('SIGSTOP')
    await sendAndLeave(service.url, withQuery('/api/oauth2/access_token', of))
    await sendAndLeave(service.url, withQuery('/api/oauth2/refresh_token', refresh))
    await visitor.submitAndLeave(consent, decision, { decision: 'confirm' })
    await newcomer.submitAndLeave(signIn, password, { ...ming })
    service.signal('SIGCONT')
    for (const name of ['access_token', 'refresh_token', 'decide', 'sign_in'])
      await expect
        .poll(() => service.output, { timeout: 10_000 })
        .toMatch(new RegExp(`"route":"${name}".*"status":400`))
    expect(await service.json(['audit', 'list'])).toEqual(before)
    expect((await exchange(service, app, code)).code).toBe('OK')
  })

  test('leaves no secret, token, code, password, cookie, csrf value or state in its log, its metrics or its files', {
    timeout: TIMEOUT_MS,
  }, async () => {
    const adminPort = await freePort()
    const service = await startProcess({ LOG_LEVEL: 'debug', ADMIN_PORT: String(adminPort) })
    const app = await createApp(service)
    await createUser(service, ming)
    const visitor = new Visitor(service.url)
    const state = 'canarystate5f1e'
    const wrong = await visitor.open(authorizePath(app, state))
    const [signIn] = wrong.html.forms
    if (signIn === undefined) throw new Error('no sign-in form')
    await visitor.submit(wrong, signIn, { username: 'ming', password: 'canary-wrong-77aa' })
    const page = await visitor.openSignedIn(authorizePath(app, state), ming)
    const csrf = page.html.forms.map(({ fields }) => fields.csrf ?? '')
    const code = await issueCode(service, app, ming, state, visitor)
    const unused = await issueCode(service, app, ming, state, visitor)
    const { data: tokens } = await exchange(service, app, code)
    await exchange(service, app, code)
    await exchange(service, { ...app, secret: 'canary-secret-wrong-11bb' }, code)
    const refreshed = await get(service, '/api/oauth2/refresh_token', {
      appid: app.appid,
      refresh_token: String(tokens.refresh_token),
      grant_type: 'refresh_token',
    })
    await profile(service, app, tokens)
    await profile(service, app, { ...tokens, access_token: 'canary-token-wrong-22cc' })
    await get(service, '/api/surveys', { appid: app.appid, access_token: 'canary%zz', openid: '\0canary-openid-33dd' })
    await send(service.url, '/api/canary-path-44ee?canary-query-55ff', {
      headers: {
        referer: 'http://h/canary-referer-66aa',
        'user-agent': 'canary-agent-77bb',
        authorization: 'canary-header-88cc',
      },
    })
    const second = await service.json<{ secret: string }>(['app', 'secret', 'add', app.appid, '--name', 'second'])
    await visitor.open('/connect/apps')
    const whileRunning = contents(service)
    const metrics = await (await fetch(`http://127.0.0.1:${adminPort}/metrics`)).text()
    expect(metrics).toContain('route="access_token"')
    expect(metrics).not.toContain(app.appid)
    expect(await service.stop()).toBe(0)

    const canaries = [
      app.secret,
      second.secret,
      ming.password,
      'canary-wrong-77aa',
      state,
      code,
      unused,
      ...csrf,
      ...visitor.cookies.values(),
      String(tokens.access_token),
      String(tokens.refresh_token),
      String(refreshed.data.access_token),
      'canary-secret-wrong-11bb',
      'canary-token-wrong-22cc',
      'canary-openid-33dd',
      'canary-path-44ee',
      'canary-query-55ff',
      'canary-referer-66aa',
      'canary-agent-77bb',
      'canary-header-88cc',
    ]
    expect(canaries.filter((canary) => canary.length < 8)).toEqual([])
    expect(service.output).toContain(app.appid) // the log was captured: the appid may be in it
    expect(whileRunning.concat(contents(service)).some((bytes) => bytes.includes(app.appid))).toBe(true)
    const places = [Buffer.from(service.output), Buffer.from(metrics), ...whileRunning, ...contents(service)]
    const hits = canaries.filter((canary) => places.some((bytes) => bytes.includes(canary)))
    expect(hits).toEqual([])
  })
})

describe('a spawned service with apps and users of its own for each test', { timeout: TIMEOUT_MS }, () => {
  let service: ServiceProcess
  beforeAll(async () => {
    service = await openProcess()
    await service.start()
    return () => service.remove()
  }, TIMEOUT_MS)

  test('makes its files accessible to its own user only', async () => {
    await createApp(service)
    expect(statSync(service.dataDir).mode & 0o077).toBe(0)
    for (const file of files(service))
      expect({ file, others: statSync(file).mode & 0o077 }).toEqual({ file, others: 0 })
  })

  test('a redirect_uri that may no longer be registered goes on working, and is kept when others are added', async () => {
    const app = await createApp(service)
    const user = await createUser(service)
    const old = `${REDIRECT_URI}?code=old`
    const refused = await service.run(['app', 'update', app.appid, '--redirect-uri', old])
    expect(refused.exitCode).toBe(1)
    expect(refused.stderr).toContain('redirect_uri must not have code, state or error in its query')

    const db = new Database(path.join(service.dataDir, 'token.db'))
    db.prepare('UPDATE apps SET redirect_uris = ? WHERE appid = ?').run(JSON.stringify([old]), app.appid)
    db.close()
    const visitor = new Visitor(service.url)
    const page = await visitor.openSignedIn(authorizePath({ ...app, redirectUri: old }), user)
    const location = (await visitor.decide(page, 'confirm')).headers.get('location') ?? ''
    expect(location.startsWith(`${old}&code=`)).toBe(true)
    const added = ['app', 'update', app.appid, '--redirect-uri', old, '--redirect-uri', REDIRECT_URI]
    expect(await service.json(added)).toMatchObject({ redirect_uris: [old, REDIRECT_URI] })
  })

  test('obeys what the command line revokes or disables while it runs, from the very next request on', async () => {
    const app = await createApp(service)
    const user = await createUser(service)
    const { data: tokens } = await exchange(service, app, await issueCode(service, app, user))
    const grants = await service.json<readonly { grant_id: string }[]>(['grant', 'list', '--username', user.username])
    expect(grants).toHaveLength(1)
    const revoke = ['grant', 'revoke', grants[0]?.grant_id ?? '']
    const revoked = { exitCode: 0, stdout: `grant_id  ${grants[0]?.grant_id}\n`, stderr: '' }
    expect(await service.run(revoke)).toEqual(revoked)
    expect((await profile(service, app, tokens)).error.type).toBe('invalid_token')
    expect(await service.run(revoke)).toEqual(revoked)

    const { data: again } = await exchange(service, app, await issueCode(service, app, user))
    await service.json(['app', 'disable', app.appid])
    expect((await profile(service, app, again)).error.type).toBe('invalid_appid')
    await service.json(['app', 'enable', app.appid])
    expect((await profile(service, app, again)).code).toBe('OK')
    await service.json(['user', 'disable', user.username])
    expect((await profile(service, app, again)).error.type).toBe('invalid_token')
  })

  test('serves surveys imported with the command line', async () => {
    const app = await createApp(service)
    const user = await createUser(service)
    const survey = smallSurvey('午餐')
    const imported = await service.json<readonly { survey_id: number }[]>(
      ['survey', 'import', '-', '--owner', user.username],
      { input: JSON.stringify(survey) },
    )
    const { data: tokens } = await exchange(service, app, await issueCode(service, app, user))
    const id = imported[0]?.survey_id ?? 0
    const detail = await get(service, `/api/surveys/${id}`, {
      appid: app.appid,
      access_token: String(tokens.access_token),
    })
    expect(detail.data).toMatchObject({ id, title: '午餐', pages: survey.pages })
  })

  test('carries on after a restart: codes, tokens, sessions and revocations are kept', async () => {
    const app = await createApp(service)
    const user = await createUser(service)
    const visitor = new Visitor(service.url)
    const used = await issueCode(service, app, user, undefined, visitor)
    const { data: tokens } = await exchange(service, app, used)
    const { data: ended } = await exchange(service, app, await issueCode(service, app, user, undefined, visitor))
    const [newest] = await service.json<readonly { grant_id: string }[]>(['grant', 'list', '--username', user.username])
    await service.json(['grant', 'revoke', newest?.grant_id ?? ''])
    const unused = await issueCode(service, app, user, undefined, visitor)
    expect(await service.stop()).toBe(0)
    await service.start()
    expect((await profile(service, app, tokens)).code).toBe('OK')
    expect((await profile(service, app, ended)).error.type).toBe('invalid_token')
    expect((await exchange(service, app, used)).error.type).toBe('invalid_code')
    const after = await exchange(service, app, unused)
    expect(after.code).toBe('OK')
    expect(after.data.openid).toBe(tokens.openid)
    expect((await visitor.open('/connect/apps')).html.text).toContain(user.username)
  })
})

function files({ dataDir }: ServiceProcess): string[] {
  return readdirSync(dataDir, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() || entry.isSocket())
    .map((entry) => path.join(entry.parentPath, entry.name))
}

function contents(service: ServiceProcess): Buffer[] {
  return files(service)
    .filter((file) => statSync(file).isFile())
    .map((file) => readFileSync(file))
}
