// The demo: one command, and everything it prints works.
import { execFile, spawn } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import type { Reply } from '../harness/http.js'
import { createProcess } from '../harness/process.js'
import { spawnServe } from '../harness/spawn.js'
import { formWith, Visitor } from '../harness/visitor.js'
import { createDatabase } from '../postgres/shared-cluster.js'

const PROGRAM = fileURLToPath(new URL('../../bin/survey-auth.js', import.meta.url))
const START_TIMEOUT_MS = 30_000
const run = promisify(execFile)

interface Demo {
  readonly guide: string
  /** Ends it as Ctrl-C does; returns its exit code. */
  stop(): Promise<number | null>
  kill(): Promise<number | null>
}

function temporaryFolder(): string {
  const folder = mkdtempSync(path.join(tmpdir(), 'survey-auth-demo-'))
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
  return folder
}

/** Ended when the test is over. */
async function startDemo(dataDir: string, env: Readonly<Record<string, string>> = {}): Promise<Demo> {
  const demo = await openDemo(dataDir, env)
  onTestFinished(async () => void (await demo.kill()))
  return demo
}

async function openDemo(
  dataDir: string,
  env: Readonly<Record<string, string>> = {},
  options: readonly string[] = [],
): Promise<Demo> {
  const { PATH = '', HOME = '' } = process.env
  const child = spawn(process.execPath, [PROGRAM, 'demo', ...options], {
    env: { PATH, HOME, DATA_DIR: dataDir, ...env },
  })
  let output = ''
  const guide = await new Promise<string>((resolve, reject) => {
    const collect = (chunk: Buffer) => {
      output += chunk.toString('utf8')
      if (output.includes('Ctrl-C ends the demo')) resolve(output)
    }
    child.stdout?.on('data', collect)
    child.stderr?.on('data', collect)
    child.on('close', (code) => reject(new Error(`the demo ended with ${code}: ${output}`)))
    setTimeout(() => reject(new Error(`the demo did not start: ${output}`)), START_TIMEOUT_MS).unref()
  })
  const end = (signal: NodeJS.Signals) =>
    new Promise<number | null>((resolve) => {
      if (child.exitCode !== null || child.signalCode !== null) return resolve(child.exitCode)
      child.once('close', resolve)
      child.kill(signal)
    })
  return { guide, stop: () => end('SIGINT'), kill: () => end('SIGKILL') }
}

/** Runs every printed curl line in a shell, in order; returns the answers. */
async function paste(guide: string): Promise<{ code: string; data: Record<string, unknown> }[]> {
  const answers = []
  for (const line of guide.match(/^curl -s 'http.*$/gm) ?? []) {
    const { stdout } = await run('sh', ['-c', line])
    answers.push(JSON.parse(stdout))
  }
  return answers
}

const everyEndpoint = [
  { code: 'OK', data: { expires_in: 259_200 } },
  { code: 'OK', data: { expires_in: 259_200 } },
  { code: 'OK', data: { nickname: expect.any(String) } },
  { code: 'OK', data: { total: expect.any(Number), list: expect.any(Array) } },
  { code: 'OK', data: { id: expect.any(Number), pages: expect.any(Array) } },
]

describe('the demo', { timeout: 60_000 }, () => {
  let demo: Demo
  let guide: string
  beforeAll(async () => {
    const folder = mkdtempSync(path.join(tmpdir(), 'survey-auth-demo-'))
    demo = await openDemo(path.join(folder, "the demo's data"))
    guide = demo.guide
    return async () => {
      await demo.kill()
      rmSync(folder, { recursive: true, force: true })
    }
  })

  test('its authorization page leads to an address that shows the code, even when the app there is connected', async () => {
    const [appUrl = ''] = guide.match(/(?<=Open {3})http:\S+/) ?? []
    const [link = ''] = guide.match(/^http:\S+\/connect\/oauth2\/authorize\S+$/m) ?? []
    const atApp = new Visitor(appUrl)
    const atService = new Visitor(new URL(link).origin)
    const confirm = async (location: string) => {
      const { pathname, search } = new URL(location)
      const page = await atService.openSignedIn(pathname + search, { username: 'demo', password: 'demo-password' })
      const back = new URL((await atService.decide(page, 'confirm')).headers.get('location') ?? '')
      return { code: back.searchParams.get('code') ?? '', reply: await atApp.request(back.pathname + back.search) }
    }
    const connected = await confirm((await atApp.request('/connect')).headers.get('location') ?? '')
    expect(connected.reply.headers.get('location')).toBe('/')

    const { code, reply } = await confirm(link)
    expect([reply.status, reply.headers.has('location')]).toEqual([400, false])
    const [exchange = ''] = guide.match(/^curl .*\/access_token\?.*$/m) ?? []
    const { stdout } = await run('sh', ['-c', exchange.replace(/(?<=code=)sac_[\w-]+/, code)])
    expect(JSON.parse(stdout)).toMatchObject({ code: 'OK' })
  })

  test('every printed command works as printed, after access given by hand has ended too', async () => {
    const [appUrl = ''] = guide.match(/(?<=Open {3})http:\S+/) ?? []
    const [appsUrl = ''] = guide.match(/http:\S+\/connect\/apps/) ?? []
    const atApp = new Visitor(appUrl)
    const user = { username: 'demo', password: 'demo-password' }
    const toService = new URL((await atApp.request('/connect')).headers.get('location') ?? '')
    const atService = new Visitor(new URL(appsUrl).origin)
    const page = await atService.openSignedIn(toService.pathname + toService.search, user)
    const back = new URL((await atService.decide(page, 'confirm')).headers.get('location') ?? '')
    expect((await atApp.open(back.pathname + back.search)).html.text).toContain('小明')

    const apps = await atService.open('/connect/apps')
    const [, grantId] = /Harvest.*?name="grant_id" value="([^"]+)"/s.exec(apps.text) ?? []
    const harvest = apps.html.forms.find(({ fields }) => fields.grant_id === grantId)
    if (!harvest) throw new Error(`nothing ends it on: ${apps.text}`)
    expect((await atService.submitAndFollow(apps, harvest)).html.text).toContain('Access has ended. Harvest can')
    expect((await atService.open('/connect/apps')).html.text).not.toContain('Harvest')
    expect((await atApp.open('/')).html.text).not.toContain('小明')
    expect(await paste(guide)).toMatchObject(everyEndpoint)
    const [link] = guide.match(/^http:\S+\/connect\/oauth2\/authorize\S+$/m) ?? []
    expect((await fetch(link ?? '')).status).toBe(200)
    const lines = guide.match(/DATA_DIR=.* list$/gm) ?? []
    const tables = await Promise.all(lines.map((line) => run('sh', ['-c', line], { cwd: tmpdir() }))) // from any folder
    expect(tables.map(({ stdout }) => stdout)).toEqual([
      expect.stringContaining('GRANT_ID'),
      expect.stringContaining('KIND'),
    ])
  })

  test('says how long its code lives', () => {
    expect(guide).toContain('only for 5 minutes from the start')
  })

  test('ends with 0 at Ctrl-C', async () => {
    expect(await demo.stop()).toBe(0)
  })
})

test('its lines go on working after the refresh line has ended the access token before it, and tell a code’s own lifetime', {
  timeout: 60_000,
}, async () => {
  const { guide } = await startDemo(temporaryFolder(), { ACCESS_TOKEN_OVERLAP_SECONDS: '0', CODE_TTL_SECONDS: '90' })
  expect(await paste(guide)).toMatchObject(everyEndpoint)
  expect(guide).toContain('only for 90 seconds from the start')
})

test('it starts again after a crash, and a second one runs beside the first', { timeout: 90_000 }, async () => {
  const dataDir = temporaryFolder()
  await (await startDemo(dataDir)).kill()
  const first = await startDemo(dataDir)
  const second = await startDemo(dataDir, {
    PUBLIC_URL: 'https://auth.example.com',
    TOKEN_DATABASE_URL: 'postgres://h/d',
  })
  expect(first.guide).not.toContain('no effect')
  expect(second.guide).toContain('no effect on the demo, which has its own: PUBLIC_URL, TOKEN_DATABASE_URL\n')
  expect(await paste(second.guide)).toMatchObject(everyEndpoint)
  expect(await paste(first.guide)).toMatchObject(everyEndpoint)
  expect(await Promise.all([first.stop(), second.stop()])).toEqual([0, 0])
})

test('two that start at the same moment both run', { timeout: 90_000 }, async () => {
  const start = () => startDemo(temporaryFolder())
  const demos = await Promise.all([start(), start()])
  expect(await Promise.all(demos.map((demo) => demo.stop()))).toEqual([0, 0])
})

describe('its database', () => {
  const refused =
    /this is a database of survey-auth demo, .*\nset another DATA_DIR; or, to keep it: survey-auth user set-/
  const serve = { RPC_LISTEN: 'off', PORT: '0', ADMIN_PORT: '0', NODE_ENV: '' }

  test('is served on loopback, and refused where others could reach it, even from a backup, until its password is changed', {
    timeout: 120_000,
  }, async () => {
    const place = await createProcess()
    await (await startDemo(place.dataDir)).kill()
    const DATA_DIR = path.join(place.dataDir, 'demo')
    const cli = (args: string[], env = {}, input = '') =>
      place.run(args, { env: { ...serve, DATA_DIR, ...env }, input, startsNothing: true })
    expect(await startAndStop({ ...serve, DATA_DIR })).toBe(0)
    for (const env of [{ NODE_ENV: 'production' }, { HOST: '0.0.0.0' }, { PUBLIC_URL: 'https://auth.example.com' }]) {
      expect(await cli(['serve'], env)).toMatchObject({ exitCode: 78, stderr: expect.stringMatching(refused) })
    }
    expect(await cli(['serve', 'token'], { NODE_ENV: 'production' })).toMatchObject({ exitCode: 78 })
    const backup = path.join(place.dataDir, 'backup.tar')
    expect((await cli(['backup', backup])).exitCode).toBe(0)
    const restored = mkdtempSync(path.join(place.dataDir, 'restored-'))
    await run('tar', ['-xf', backup, '-C', restored])
    const there = { DATA_DIR: restored, NODE_ENV: 'production' }
    expect((await cli(['serve'], there)).exitCode).toBe(78)
    expect((await cli(['user', 'set-password', 'demo', '--password-stdin'], there, 'another one')).exitCode).toBe(0)
    expect(await startAndStop({ ...serve, ...there })).toBe(0)
  })

  test('is refused on PostgreSQL as well, unless its account is disabled', async () => {
    const url = await createDatabase()
    const place = await createProcess({ TOKEN_DATABASE_URL: url, SURVEY_DATABASE_URL: url })
    const user = ['user', 'create', '--username', 'demo', '--password-stdin']
    expect((await place.run(user, { input: 'demo-password' })).exitCode).toBe(0)
    expect(await place.run(['serve'], { startsNothing: true })).toMatchObject({
      exitCode: 78,
      stderr: expect.stringMatching(refused),
    })
    expect((await place.run(['user', 'disable', 'demo'])).exitCode).toBe(0)
    await place.start()
    expect(await place.stop()).toBe(0)
  })
})

/** Runs `survey-auth serve` until it listens; returns its exit code after SIGTERM. */
async function startAndStop(env: Readonly<Record<string, string>>): Promise<number | null> {
  const { PATH = '', HOME = '' } = process.env
  const { child, listening } = spawnServe('all', { PATH, HOME, ...env })
  onTestFinished(() => void child.kill('SIGKILL'))
  await listening
  return new Promise((resolve) => {
    child.once('close', resolve)
    child.kill('SIGTERM')
  })
}

test.each([
  ['NODE_ENV', 'production'],
  ['HOST', '0.0.0.0'],
])('it refuses to run with %s=%s', async (variable, value) => {
  const place = await createProcess({ NODE_ENV: '', [variable]: value })
  expect((await place.run(['demo'])).exitCode).toBe(78)
})

test('with --sign-in handoff, users sign in at the example platform, or by two pasted calls, and everything else is as without', async () => {
  const folder = temporaryFolder()
  const demo = await openDemo(folder, {}, ['--sign-in', 'handoff'])
  onTestFinished(async () => void (await demo.kill()))
  const { guide } = demo
  expect(await paste(guide)).toMatchObject(everyEndpoint)
  const [appUrl = ''] = guide.match(/(?<=Open {3})http:\S+/) ?? []
  const [appsUrl = ''] = guide.match(/http:\S+\/connect\/apps/) ?? []
  const [platformUrl = ''] = guide.match(/http:\S+(?=, you are signed in too)/) ?? []
  const atApp = new Visitor(appUrl)
  const atPlatform = new Visitor(platformUrl)
  const atService = new Visitor(new URL(appsUrl).origin)
  const toPlatform = async () => {
    const toService = await locationOf(atApp.request('/connect'))
    return locationOf(atService.request(toService.pathname + toService.search))
  }
  const there = await toPlatform()
  const page = await atPlatform.open(there.pathname + there.search)
  const form = formWith(page, 'password')
  if (!form) throw new Error(`nobody signs in on: ${page.text}`)
  const back = await locationOf(atPlatform.submit(page, form, { name: 'ming', password: 'ming-password' }))
  const consent = await atService.open(back.pathname + back.search)
  expect(consent.html.text).toContain('小明')
  const toApp = await locationOf(atService.decide(consent, 'confirm'))
  expect((await atApp.open(toApp.pathname + toApp.search)).html.text).toContain('小明')

  atService.cookies.clear()
  const CHALLENGE = (await toPlatform()).searchParams.get('sign_in_challenge') ?? ''
  const [get = '', accept = ''] = guide.match(/^curl .*SignInService.*$/gm) ?? []
  const call = async (line: string) =>
    JSON.parse((await run('sh', ['-c', line], { env: { ...process.env, CHALLENGE } })).stdout)
  expect(await call(get)).toMatchObject({ state: 'SIGN_IN_STATE_PENDING', appName: 'Harvest' })
  const again = new URL((await call(accept)).redirectTo)
  expect((await atService.open(again.pathname + again.search)).html.text).toContain('Lan')
  expect(await demo.stop()).toBe(0)
})

async function locationOf(answer: Promise<Reply>): Promise<URL> {
  return new URL((await answer).headers.get('location') ?? '')
}
