// Three real processes: what a client sees while one of the services is gone, hangs or is replaced.
import { type ChildProcess, execFileSync } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import { connectTo } from '../../bin/compose/remote.js'
import { readConfig } from '../../bin/config.js'
import { AccountService } from '../../gen/surveyauth/v1/account_service_pb.js'
import { AdminService } from '../../gen/surveyauth/v1/admin_service_pb.js'
import { TokenService } from '../../gen/surveyauth/v1/token_service_pb.js'
import { clientOf } from '../../services/rpc/client.js'
import { freePort } from '../harness/free-port.js'
import { sendAndLeave } from '../harness/http.js'
import { BUILD, spawnServe } from '../harness/spawn.js'
import { withQuery } from '../harness/verbs.js'

/** The gateway answers within its RPC deadline of 4.5 s; the rest is for a loaded test machine. */
const ANSWER_WITHIN_MS = 8_000
const BACK_WITHIN_MS = 15_000

type Mode = 'gateway' | 'token' | 'survey'

const dataDir = mkdtempSync(path.join(tmpdir(), 'survey-auth-outage-'))
const running = new Map<Mode, ChildProcess>()
let base: string
let env: Record<string, string>

beforeAll(async () => {
  execFileSync(process.execPath, [BUILD], { stdio: 'inherit' })
  const port = await freePort()
  base = `http://127.0.0.1:${port}`
  const { PATH = '', HOME = '' } = process.env
  env = { PATH, HOME, DATA_DIR: dataDir, PORT: String(port), ADMIN_PORT: '0', RATE_LIMIT: 'off', LOG_LEVEL: 'error' }
  await Promise.all([startUp('gateway'), startUp('survey'), startUp('token')])
  await until(async () => (await ask()).type === 'invalid_appid')
}, 120_000)

afterAll(() => {
  for (const child of running.values()) child.kill('SIGKILL')
  rmSync(dataDir, { recursive: true, force: true })
})

/** Fulfils when the process says that it listens. */
function startUp(mode: Mode): Promise<void> {
  const { child, listening } = spawnServe(mode, env)
  running.set(mode, child)
  return listening
}

function end(mode: Mode, signal: NodeJS.Signals): Promise<number | null> {
  const child = running.get(mode)
  if (!child) throw new Error(`${mode} does not run`)
  child.removeAllListeners('exit')
  return new Promise((resolve) => {
    child.once('exit', (code) => resolve(code))
    child.kill(signal)
  })
}

/** A call that every service answers: the appid is unknown, so a working service says so. */
async function ask(): Promise<{ status: number; type: string; ms: number; retryAfter: string | null }> {
  const startedAt = performance.now()
  const answer = await fetch(`${base}/api/surveys/1?appid=app_x&access_token=sat_x`)
  const { error } = (await answer.json()) as { error: { type: string } }
  const ms = performance.now() - startedAt
  return { status: answer.status, type: error.type, ms, retryAfter: answer.headers.get('retry-after') }
}

/** Well within the time our processes wait for a connection. */
const WAITED_FOR_MS = 2_500

async function until(isTrue: () => Promise<boolean>): Promise<number> {
  const startedAt = performance.now()
  while (!(await isTrue().catch(() => false))) {
    if (performance.now() - startedAt > BACK_WITHIN_MS) throw new Error(`not within ${BACK_WITHIN_MS} ms`)
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
  return performance.now() - startedAt
}

const works = async () => (await ask()).type === 'invalid_appid'

async function expectOutage(): Promise<void> {
  const { status, type, ms, retryAfter } = await ask()
  expect({ status, type }).toEqual({ status: 503, type: 'remote_server_error' })
  expect(Number(retryAfter)).toBeGreaterThan(0)
  expect(ms).toBeLessThan(ANSWER_WITHIN_MS)
}

/** How an app exchanges codes at the gateway, and codes for it that are not exchanged yet. */
async function appWithCodes() {
  const address = { kind: 'unix', path: path.join(dataDir, 'token.sock') } as const
  const remote = connectTo('token', [address], readConfig(env), 'local')
  onTestFinished(() => remote.close())
  const admin = clientOf(AdminService, remote.invoke)
  const account = clientOf(AccountService, remote.invoke)
  const token = clientOf(TokenService, remote.invoke)
  const redirectUri = 'https://app.example/callback'
  const { app, secret } = await admin.createApp({ name: 'App', redirectUris: [redirectUri] })
  const appid = app?.appid ?? ''
  const person = { username: `user.${appid.slice(-6).toLowerCase()}`, password: 'correct horse battery' }
  await admin.createUser(person)
  const { sessionToken } = await account.signIn({ ...person, source: '192.0.2.1' })
  return {
    async issueCode(): Promise<string> {
      const asked = { sessionToken, requestId: randomUUID(), appid, redirectUri, scope: 'snsapi_user' }
      return (await token.issueCode(asked)).code
    },
    targetOf(code: string): string {
      return withQuery('/api/oauth2/access_token', { appid, secret, code, grant_type: 'authorization_code' })
    },
    async exchange(code: string): Promise<number> {
      return (await fetch(base + this.targetOf(code))).status
    },
  }
}

test('an exchange answered 503 while the token service was suspended does not happen when that resumes', async () => {
  const app = await appWithCodes()
  for (const stoppedMs of [2_600, 3_500]) {
    const code = await app.issueCode()
    running.get('token')?.kill('SIGSTOP')
    const told = app.exchange(code)
    await new Promise((resolve) => setTimeout(resolve, stoppedMs))
    running.get('token')?.kill('SIGCONT')
    if ((await told) !== 503) continue // a machine that stood still itself
    await until(works)
    expect(await app.exchange(code)).toBe(200)
  }
}, 60_000)

test.each<Mode>(['gateway', 'token'])(
  'an exchange whose client leaves while the %s process is suspended does not happen when that resumes',
  async (mode) => {
    const app = await appWithCodes()
    const code = await app.issueCode()
    await until(works) // over connections that are open then
    running.get(mode)?.kill('SIGSTOP')
    await sendAndLeave(base, app.targetOf(code))
    await new Promise((resolve) => setTimeout(resolve, 700)) // less than what connections are given up after
    running.get(mode)?.kill('SIGCONT')
    await until(works)
    expect(await app.exchange(code)).toBe(200)
  },
  60_000,
)

describe.each(['token', 'survey'] as const)('when the %s service', (mode) => {
  test('is killed, the answer is 503, and calls work again after its return', async () => {
    await end(mode, 'SIGKILL')
    await expectOutage()
    await startUp(mode)
    await until(works)
  }, 60_000)

  test('hangs, the answer is 503, and calls work again when it resumes', async () => {
    running.get(mode)?.kill('SIGSTOP')
    await expectOutage()
    running.get(mode)?.kill('SIGCONT')
    await until(works)
  }, 60_000)

  test('is replaced under load, reads wait for the successor', async () => {
    const types = new Set<string>()
    let isOver = false
    const clients = Array.from({ length: 4 }, async () => {
      while (!isOver) {
        types.add((await ask()).type) // rejects when a connection is cut
      }
    })
    const goneAt = performance.now()
    expect(await end(mode, 'SIGTERM')).toBe(0)
    await startUp(mode)
    const outageMs = performance.now() - goneAt
    await until(works)
    isOver = true
    await Promise.all(clients)
    if (outageMs > WAITED_FOR_MS) types.delete('remote_server_error') // a busy machine
    expect([...types]).toEqual(['invalid_appid'])
  }, 60_000)
})
