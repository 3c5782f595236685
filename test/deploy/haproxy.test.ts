// deploy/haproxy as installed, on high ports, in front of two gateways: what is sent again, what people and apps get when no
// gateway answers, what is logged, and a gateway that is replaced. Skipped where there is no HAProxy, which on CI is a failure.
import { type ChildProcess, execFile, execFileSync, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { request } from 'node:https'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, afterEach, describe, expect, test, vi } from 'vitest'
import { freePort } from '../harness/free-port.js'
import { BUILD, spawnServe } from '../harness/spawn.js'
import { createAuthority } from '../rpc/certificates.js'

vi.setConfig({ testTimeout: 120_000 })

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const HOST = 'auth.example.com'
const hasHaproxy = spawnSync('haproxy', ['-v']).status === 0

const children: ChildProcess[] = []
const folder = mkdtempSync(path.join(tmpdir(), 'survey-auth-haproxy-'))
const authority = createAuthority()
writeFileSync(path.join(folder, 'ca.pem'), authority.cert)

afterEach(async () => {
  for (const child of children.splice(0)) await end(child, 'SIGKILL')
})
afterAll(() => rmSync(folder, { recursive: true, force: true }))

async function end(child: ChildProcess, signal: NodeJS.Signals): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return
  child.kill(signal)
  await once(child, 'exit')
}

interface Gateway {
  readonly port: number
  readonly adminPort: number
}

/** HAProxy with the file of deploy/haproxy; only paths and ports are changed. Everything it has logged is in `log`. */
async function startHaproxy(gateways: readonly [Gateway, Gateway]) {
  const port = await freePort()
  const { cert, key } = authority.issue(`DNS:${HOST}`)
  writeFileSync(path.join(folder, 'both.pem'), cert + key)
  let text = readFileSync(path.join(ROOT, 'deploy/haproxy/haproxy.cfg'), 'utf8')
    .replace('/etc/ssl/auth.example.com.pem', path.join(folder, 'both.pem'))
    .replaceAll('/etc/haproxy/', path.join(ROOT, 'deploy/'))
    .replace('bind :443', `bind 127.0.0.1:${port}`)
    .replace('bind :80', `bind 127.0.0.1:${await freePort()}`)
  for (const [at, gateway] of gateways.entries()) {
    text = text.replaceAll(`127.0.0.1:808${at} port 1808${at}`, `127.0.0.1:${gateway.port} port ${gateway.adminPort}`)
  }
  const file = path.join(folder, 'haproxy.cfg')
  writeFileSync(file, text)
  const checked = spawnSync('haproxy', ['-c', '-f', file], { encoding: 'utf8' })
  expect(checked.stdout + checked.stderr).not.toMatch(/WARNING|ALERT/)
  const child = spawn('haproxy', ['-f', file], { stdio: ['ignore', 'pipe', 'pipe'] })
  children.push(child)
  const haproxy = { url: `https://${HOST}:${port}`, port, log: '' }
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (chunk: Buffer) => {
      haproxy.log += chunk.toString()
    })
  await expect.poll(async () => (await curl(haproxy, '/nowhere')).status, { timeout: 30_000 }).toBeGreaterThan(0)
  return haproxy
}

/** One request by the curl command, over TLS. */
async function curl({ url, port }: { readonly url: string; readonly port: number }, target: string, ...more: string[]) {
  const where = ['--cacert', path.join(folder, 'ca.pem'), '--resolve', `${HOST}:${port}:127.0.0.1`]
  const args = ['--silent', '--include', ...where, ...more, url + target]
  const stdout = await new Promise<string>((resolve) => execFile('curl', args, (_, out) => resolve(out)))
  const [headers = '', ...body] = stdout.split('\r\n\r\n')
  return { status: Number(/^HTTP\/\S+ (\d+)/.exec(headers)?.[1] ?? 0), headers, text: body.join('\r\n\r\n') }
}

/** A server that is ready and cuts each connection after it received a request. */
async function startCutting(onReceived: () => void): Promise<Gateway> {
  const server = createServer(({ url, socket }, answer) => {
    if (url === '/readyz') return void answer.end('ready\n')
    onReceived()
    socket.destroy()
  })
  await once(server.listen(0, '127.0.0.1'), 'listening')
  afterThis.push(() => server.close())
  const { port } = server.address() as AddressInfo
  return { port, adminPort: port }
}

const afterThis: (() => unknown)[] = []
afterEach(() => {
  for (const undo of afterThis.splice(0)) undo()
})

describe.skipIf(!hasHaproxy)('HAProxy', () => {
  test.each([
    ['/api/oauth2/access_token', 'GET', 1],
    ['/api/oauth2/refresh_token', 'GET', 1],
    ['/connect/sign-in', 'POST', 1],
    ['/connect/sign-in/return?verifier=x', 'GET', 1],
    ['/connect/oauth2/authorize', 'POST', 1],
    ['/api/oauth2/user', 'GET', 3],
    ['/api/surveys', 'GET', 3],
    ['/api/surveys/7', 'GET', 3],
  ])('sends %s by %s to %i gateways that cut the connection after they received it', async (target, method, times) => {
    let received = 0
    const count = () => {
      received += 1
    }
    const haproxy = await startHaproxy([await startCutting(count), await startCutting(count)])
    received = 0
    const answer = await curl(haproxy, `${target}?code=canaryCode`, '--request', method)
    expect(received).toBe(times)
    expect(answer.status).toBe(502)
    expect(answer.text).toContain(target.startsWith('/api/') ? '"type":"remote_server_error"' : '暂时无法使用')
    expect(haproxy.log).not.toContain('canaryCode')
  })

  test('leaves it to a gateway to refuse many headers', async () => {
    let received = 0
    const count = () => {
      received += 1
    }
    const haproxy = await startHaproxy([await startCutting(count), await startCutting(count)])
    received = 0
    const headers = Array.from({ length: 150 }, (_, n) => ['--header', `x-${n}: 1`]).flat()
    await curl(haproxy, '/api/oauth2/access_token', ...headers)
    expect(received).toBe(1)
  })

  test('answers apps in the envelope and people with our page when there is no gateway', async () => {
    const haproxy = await startHaproxy([await freePorts(), await freePorts()])
    const api = await curl(haproxy, '/api/surveys?access_token=canaryToken')
    expect([api.status, JSON.parse(api.text)]).toEqual([
      503,
      {
        code: 'RemoteServerError',
        error: { type: 'remote_server_error', message: 'the service did not answer', action: 'retry' },
        data: {},
        request_id: expect.stringMatching(/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/),
      },
    ])
    expect(api.headers).toMatch(/^retry-after: 1\r?$/im)
    const page = await curl(haproxy, '/connect/apps')
    expect([page.status, page.text]).toEqual([503, readFileSync(path.join(ROOT, 'deploy/unavailable.html'), 'utf8')])
    expect(page.headers).toMatch(/^content-type: text\/html; charset=utf-8\r?$/im)
    await expect.poll(() => haproxy.log).toContain('GET /api/surveys 503')
    expect(haproxy.log).not.toContain('canaryToken')
  })

  test('loses no request while each of two gateways is replaced', async () => {
    execFileSync(process.execPath, [BUILD], { stdio: 'inherit' })
    const { PATH = '', HOME = '' } = process.env
    const env = { PATH, HOME, DATA_DIR: path.join(folder, 'data'), LOG_LEVEL: 'error', RATE_LIMIT: 'off' }
    const run = async (mode: string, more: Record<string, string>) => {
      const { child, listening } = spawnServe(mode, { ...env, ...more })
      children.push(child)
      await listening
      return child
    }
    for (const mode of ['token', 'survey']) await run(mode, { ADMIN_PORT: '0' })
    const gateways = [await freePorts(), await freePorts()] as const
    const start = ({ port, adminPort }: Gateway) =>
      run('gateway', { PORT: String(port), ADMIN_PORT: String(adminPort), DRAIN_SECONDS: '4' })
    const running = [await start(gateways[0]), await start(gateways[1])]
    const haproxy = await startHaproxy(gateways)
    await expect.poll(() => statusThrough(haproxy.port), { timeout: 30_000 }).toBe(400)

    const statuses = new Map<number, number>()
    let goesOn = true
    const ask = async () => {
      while (goesOn) {
        const status = await statusThrough(haproxy.port)
        statuses.set(status, (statuses.get(status) ?? 0) + 1)
      }
    }
    const clients = Array.from({ length: 8 }, ask)
    for (const [at, gateway] of gateways.entries()) {
      const old = running[at]
      if (!old) throw new Error('no such gateway')
      await end(old, 'SIGTERM')
      expect(old.exitCode).toBe(0)
      await start(gateway)
      await new Promise((resolve) => setTimeout(resolve, 2_000)) // HAProxy sees that it is back
    }
    goesOn = false
    await Promise.all(clients)
    expect([...statuses.keys()]).toEqual([400])
  })
})

async function freePorts(): Promise<Gateway> {
  return { port: await freePort(), adminPort: await freePort() }
}

/** Of a request that the gateway refuses for its missing parameters, on a connection of its own; 0 without an answer. */
function statusThrough(port: number): Promise<number> {
  return new Promise((resolve) => {
    const where = { host: '127.0.0.1', port, servername: HOST, path: '/api/oauth2/access_token', agent: false }
    request({ ...where, ca: authority.cert }, (answer) => {
      answer.resume()
      resolve(answer.statusCode ?? 0)
    })
      .on('error', () => resolve(0))
      .end()
  })
}
