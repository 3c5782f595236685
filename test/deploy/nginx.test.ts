// deploy/nginx as installed, on a high port, in front of two gateways: what reaches them, what is retried, what is
// logged. Skipped where there is no nginx, which on CI is a failure.
import { type ChildProcess, execFile, execFileSync, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createServer as createHttpServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { freePort } from '../harness/free-port.js'
import { readHtml } from '../harness/html.js'
import { smallSurvey } from '../harness/sample-surveys.js'
import { spawnServe } from '../harness/spawn.js'
import { authorizePath, CALLBACK, withQuery } from '../harness/verbs.js'
import { createAuthority } from '../rpc/certificates.js'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const PROGRAM = path.join(ROOT, 'bin/survey-auth.js')
const HOST = 'auth.example.com'
const OUR_PAGE = readFileSync(path.join(ROOT, 'deploy/unavailable.html'), 'utf8')
const TIMEOUT_MS = 180_000
const hasNginx = spawnSync('nginx', ['-v']).status === 0

const children: ChildProcess[] = []
const folder = mkdtempSync(path.join(tmpdir(), 'survey-auth-nginx-'))
const authority = createAuthority()

afterAll(async () => {
  for (const child of children) {
    if (child.exitCode !== null || child.signalCode !== null) continue
    child.kill('SIGTERM') // not SIGKILL: nginx would leave its workers behind
    await once(child, 'exit')
  }
  rmSync(folder, { recursive: true, force: true })
})

/** nginx with the files of deploy/nginx; only paths and ports are changed. */
class Nginx {
  readonly folder: string
  readonly port: number
  readonly plainPort: number

  private constructor(name: string, port: number, plainPort: number) {
    this.folder = path.join(folder, name)
    this.port = port
    this.plainPort = plainPort
  }

  static async start(name: string, gateways: readonly [number, number], maxFails: 0 | 1): Promise<Nginx> {
    const nginx = new Nginx(name, await freePort(), await freePort())
    nginx.#install(gateways, maxFails)
    const args = ['-p', nginx.folder, '-c', 'nginx.conf', '-e', 'start.log']
    const tried = spawnSync('nginx', ['-t', ...args], { encoding: 'utf8' })
    expect(tried.stderr).toContain('test is successful')
    expect(tried.stderr).not.toContain('[warn]')
    children.push(spawn('nginx', args, { stdio: 'ignore' }))
    await until(async () => (await nginx.curl('/nowhere')).status > 0)
    return nginx
  }

  /** Marks a gateway as `down`, or none, as docs/operators/proxy.md says. */
  reload(down?: number): void {
    const file = path.join(this.folder, 'upstream.conf')
    const marked = readFileSync(file, 'utf8')
      .replaceAll(' down;', ';')
      .replace(new RegExp(`(server 127\\.0\\.0\\.1:${down} [^;]*);`), '$1 down;')
    writeFileSync(file, marked)
    execFileSync('nginx', ['-s', 'reload', '-p', this.folder, '-c', 'nginx.conf', '-e', 'start.log'])
  }

  /** Everything nginx wrote to its logs. */
  get logs(): string {
    return ['survey-auth.log', 'survey-auth-error.log', 'start.log'].map((name) => this.#read(name)).join('')
  }

  get url(): string {
    return `https://${HOST}:${this.port}`
  }

  /** One request by the curl command, HTTP/2 over TLS unless told otherwise. */
  async curl(target: string, ...more: string[]): Promise<{ status: number; headers: string; text: string }> {
    const where = target.startsWith('http:') ? target : this.url + target
    const resolve = [this.port, this.plainPort].flatMap((port) => ['--resolve', `${HOST}:${port}:127.0.0.1`])
    const args = ['--silent', '--include', '--cacert', path.join(this.folder, 'ca.pem'), ...resolve, ...more, where]
    const out = await output('curl', args)
    const [headers = '', ...body] = out.split('\r\n\r\n')
    return { status: Number(/^HTTP\/\S+ (\d+)/.exec(headers)?.[1] ?? 0), headers, text: body.join('\r\n\r\n') }
  }

  #install(gateways: readonly [number, number], maxFails: 0 | 1): void {
    mkdirSync(path.join(this.folder, 'temp'), { recursive: true })
    const { cert, key } = authority.issue(`DNS:${HOST}`)
    const user = process.getuid?.() === 0 ? 'user root;' : ''
    const temporary = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map(
      (kind) => `${kind}_temp_path temp/${kind};`,
    )
    const main = `daemon off; pid nginx.pid; ${user} events {} http { access_log off; ${temporary.join(' ')} include survey-auth.conf; }`
    const upstream = this.#deployed('upstream.conf')
      .replace('127.0.0.1:8080', `127.0.0.1:${gateways[0]}`)
      .replace('127.0.0.1:8081', `127.0.0.1:${gateways[1]}`)
      .replaceAll('max_fails=1', `max_fails=${maxFails}`)
    const server = this.#deployed('survey-auth.conf')
      .replace('listen 443 ', `listen 127.0.0.1:${this.port} `)
      .replace('listen 80;', `listen 127.0.0.1:${this.plainPort};`)
      .replaceAll('/etc/nginx/survey-auth/', '')
      .replaceAll(/\/(etc\/ssl|var\/log\/nginx)\//g, `${this.folder}/`)
    const written = {
      'nginx.conf': main,
      'upstream.conf': upstream,
      'survey-auth.conf': server,
      'ca.pem': authority.cert,
      'unavailable.html': OUR_PAGE,
    }
    const tls = { [`${HOST}.pem`]: cert, [`${HOST}.key`]: key }
    for (const [name, text] of Object.entries({ ...written, ...tls })) writeFileSync(path.join(this.folder, name), text)
  }

  #deployed(name: string): string {
    return readFileSync(path.join(ROOT, 'deploy/nginx', name), 'utf8')
  }

  #read(name: string): string {
    return readFileSync(path.join(this.folder, name), 'utf8')
  }
}

describe.skipIf(!hasNginx)('in front of two gateways of a separated service', () => {
  let nginx: Nginx
  let gateways: readonly [ChildProcess, ChildProcess]
  let ports: readonly [number, number]
  let startGateway: (port: number) => Promise<ChildProcess>
  let app: { readonly appid: string; readonly secret: string }
  let tokens: { readonly access_token: string; readonly refresh_token: string; readonly openid: string }
  const env = (more: object) => {
    const { PATH = '', HOME = '' } = process.env
    return { PATH, HOME, DATA_DIR: path.join(folder, 'data'), ADMIN_PORT: '0', LOG_LEVEL: 'error', ...more }
  }

  function operate<T>(args: readonly string[], input = ''): T {
    return JSON.parse(
      execFileSync(process.execPath, [PROGRAM, ...args, '--json'], { env: env({}), input, stdio: 'pipe' }).toString(),
    ) as T
  }

  beforeAll(async () => {
    execFileSync(process.execPath, [path.join(ROOT, 'bin/build-if-needed.js')], { stdio: 'inherit' })
    ports = [await freePort(), await freePort()]
    await serve('token', env({}))
    await serve('survey', env({}))
    app = operate(['app', 'create', '--name', 'Report Builder', '--redirect-uri', CALLBACK])
    operate(['user', 'create', '--username', 'ana', '--password-stdin'], 'correct horse\n')
    writeFileSync(path.join(folder, 'surveys.json'), JSON.stringify([smallSurvey('Team lunch')]))
    operate(['survey', 'import', path.join(folder, 'surveys.json'), '--owner', 'ana'])
    nginx = await Nginx.start('real', ports, 1)
    const front = { PUBLIC_URL: nginx.url, TRUSTED_PROXIES: '127.0.0.1', RATE_PAGES_PER_SOURCE: '40' }
    startGateway = (port) => serve('gateway', env({ ...front, PORT: String(port) }))
    gateways = [await startGateway(ports[0]), await startGateway(ports[1])]
  }, TIMEOUT_MS)

  /** Opens a page, signs in and confirms; returns the code in the callback. */
  async function authorize(state: string): Promise<string> {
    const jar = ['--cookie', path.join(folder, 'jar'), '--cookie-jar', path.join(folder, 'jar')]
    const submit = async (text: string, filled: Record<string, string>) => {
      const form = readHtml(text).forms.find(({ fields, buttons }) =>
        Object.keys(filled).some((name) => name in fields || buttons.some((button) => button.name === name)),
      )
      if (!form) throw new Error(`no such form on: ${text}`)
      const data = Object.entries({ ...form.fields, ...filled }).flatMap(([name, value]) => [
        '--data-urlencode',
        `${name}=${value}`,
      ])
      return nginx.curl(form.action, ...jar, '--header', `Origin: ${nginx.url}`, ...data)
    }
    const target = authorizePath({ appid: app.appid, redirectUri: CALLBACK }, state)
    const signedOut = await nginx.curl(target, ...jar)
    const signIn = await submit(signedOut.text, { username: 'ana', password: 'correct horse' })
    expect(signIn.status).toBe(303)
    const page = await nginx.curl(target, ...jar)
    const confirmed = await submit(page.text, { decision: 'confirm' })
    expect(confirmed.status).toBe(303)
    const callback = new URL(/^location: (.*)$/im.exec(confirmed.headers)?.[1]?.trim() ?? '')
    expect(callback.searchParams.get('state')).toBe(state)
    return callback.searchParams.get('code') ?? ''
  }

  const read = async (target: string, query: Record<string, string>) => {
    const { status, text } = await nginx.curl(withQuery(target, query))
    return { status, ...(JSON.parse(text) as { code: string; error: { type: string }; data: Record<string, never> }) }
  }

  test(
    'the whole flow of the contract works over HTTP/2, and leaves no secret in the logs of nginx',
    async () => {
      const code = await authorize('canaryState')
      const exchange = { ...app, code, grant_type: 'authorization_code' }
      const granted = await read('/api/oauth2/access_token', {
        appid: exchange.appid,
        secret: exchange.secret,
        code,
        grant_type: exchange.grant_type,
      })
      expect(granted.code).toBe('OK')
      tokens = granted.data as unknown as typeof tokens
      const { appid } = app
      const who = { appid, access_token: tokens.access_token, openid: tokens.openid }
      expect((await read('/api/oauth2/user', who)).data).toMatchObject({ openid: tokens.openid })
      const { list } = (await read('/api/surveys', who)).data as unknown as { list: { id: number; title: string }[] }
      expect(list.map(({ title }) => title)).toEqual(['Team lunch'])
      expect((await read(`/api/surveys/${list[0]?.id}`, who)).data).toMatchObject({ title: 'Team lunch' })
      const refresh = { appid, refresh_token: tokens.refresh_token, grant_type: 'refresh_token' }
      const refreshed = (await read('/api/oauth2/refresh_token', refresh)).data as unknown as typeof tokens
      const secrets = [
        app.secret,
        code,
        tokens.access_token,
        tokens.refresh_token,
        refreshed.access_token,
        'canaryState',
        'correct horse',
      ]
      expect(nginx.logs).toContain('"GET /api/oauth2/access_token" 200')
      for (const secret of secrets) expect(nginx.logs).not.toContain(secret)
      expect((await nginx.curl('/connect/apps')).headers).toMatch(/^HTTP\/2 /)
    },
    TIMEOUT_MS,
  )

  test.each(['--http1.1', '--http2'])(
    'a URL or headers that are too long are answered by the gateway, in the envelope, with %s',
    async (version) => {
      const url = await nginx.curl(`/api/surveys?appid=${'a'.repeat(9_000)}`, version)
      const headers = await nginx.curl('/api/surveys', version, '--header', `X-Long: ${'a'.repeat(17_000)}`)
      expect([url.status, headers.status]).toEqual([414, 431])
      for (const { text } of [url, headers])
        expect(JSON.parse(text)).toMatchObject({ error: { type: 'invalid_argument' } })
    },
    TIMEOUT_MS,
  )

  test(
    'a path reaches the gateway as it was sent',
    async () => {
      for (const target of ['/api//surveys', '/api/oauth2/%75ser', '/api/x/../surveys'])
        expect((await nginx.curl(target, '--path-as-is')).text, target).toContain('no_route')
    },
    TIMEOUT_MS,
  )

  test(
    'clients are told apart by the address nginx sees, whatever X-Forwarded-For they send',
    async () => {
      const statuses = new Set<number>()
      for (let sent = 0; sent < 100; sent += 1) {
        const claimed = `X-Forwarded-For: 203.0.113.${sent}`
        statuses.add((await nginx.curl('/connect/apps', '--header', claimed)).status)
        if (statuses.has(429)) break
      }
      expect(statuses).toContain(429)
    },
    TIMEOUT_MS,
  )

  test(
    'no exchange is lost while a gateway is replaced that was marked as down before',
    async () => {
      const statuses: number[] = []
      let goesOn = true
      const exchanging = (async () => {
        const target = withQuery('/api/oauth2/access_token', {
          ...app,
          code: 'sac_x',
          grant_type: 'authorization_code',
        })
        while (goesOn) statuses.push((await nginx.curl(target)).status)
      })()
      const exchanged = async () => {
        const enough = statuses.length + 6
        await until(async () => statuses.length > enough)
      }
      nginx.reload(ports[0])
      await exchanged()
      gateways[0].kill('SIGTERM')
      await once(gateways[0], 'exit')
      await exchanged()
      gateways = [await startGateway(ports[0]), gateways[1]]
      nginx.reload()
      await exchanged()
      goesOn = false
      await exchanging
      expect(new Set(statuses)).toEqual(new Set([400]))
    },
    TIMEOUT_MS,
  )

  test(
    'with one gateway down reads succeed; with both down the API answers 503 in its envelope',
    async () => {
      const { appid } = app
      const who = { appid, access_token: tokens.access_token, openid: tokens.openid }
      gateways[0].kill('SIGKILL')
      for (let sent = 0; sent < 6; sent += 1) expect((await read('/api/oauth2/user', who)).code).toBe('OK')
      gateways[1].kill('SIGKILL')
      const { status, headers, text } = await nginx.curl(
        withQuery('/api/oauth2/access_token', { ...app, code: 'canaryCode' }),
      )
      expect(status).toBe(503)
      expect(headers).toMatch(/^content-type: application\/json; charset=utf-8\r?$/im)
      expect(headers).toMatch(/^retry-after: 1\r?$/im)
      expect(JSON.parse(text)).toEqual({
        code: 'RemoteServerError',
        error: { type: 'remote_server_error', message: expect.any(String), action: 'retry' },
        data: {},
        request_id: expect.stringMatching(/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/),
      })
      expect(nginx.logs).not.toContain('canaryCode')
    },
    TIMEOUT_MS,
  )

  test(
    'without TLS pages redirect to https and the API is a 404',
    async () => {
      const page = await nginx.curl(`http://${HOST}:${nginx.plainPort}/connect/apps`)
      expect([page.status, /^location: (\S+)/im.exec(page.headers)?.[1]]).toEqual([301, `https://${HOST}/connect/apps`])
      expect((await nginx.curl(`http://${HOST}:${nginx.plainPort}/api/surveys?appid=x`)).status).toBe(404)
    },
    TIMEOUT_MS,
  )
})

describe.skipIf(!hasNginx)('when gateways cut the connection after they received the request', () => {
  test.each([
    ['/api/oauth2/access_token', 'GET', 1],
    ['/api/oauth2/refresh_token', 'GET', 1],
    ['/connect/sign-in', 'POST', 1],
    ['/connect/sign-in/return?verifier=x', 'GET', 1],
    ['/connect/oidc/corp/callback?code=x&state=y', 'GET', 1],
    ['/connect/oauth2/authorize', 'POST', 1],
    ['/connect/apps/disconnect', 'POST', 1],
    ['/api/oauth2/user', 'GET', 2],
    ['/api/surveys', 'GET', 2],
    ['/api/surveys/7', 'GET', 2],
  ])(
    '%s by %s reaches %i of them',
    async (target, method, times) => {
      let received = 0
      const cutting = [1, 2].map(() =>
        createHttpServer((request) => {
          received += 1
          request.socket.destroy()
        }),
      )
      for (const server of cutting) await once(server.listen(0, '127.0.0.1'), 'listening')
      try {
        const [first = 0, second = 0] = cutting.map((server) => (server.address() as AddressInfo).port)
        const nginx = await Nginx.start(`cut${target.replaceAll('/', '-')}`, [first, second], 0)
        received = 0
        const answer = await nginx.curl(`${target}?code=canaryCode`, '--request', method)
        expect(received).toBe(times)
        expect(answer.status).toBe(503)
        if (target.startsWith('/connect/')) expect(answer.text).toBe(OUR_PAGE)
        else expect(answer.text).toContain('"type":"remote_server_error"')
        expect(nginx.logs).not.toContain('canaryCode')
      } finally {
        for (const server of cutting) server.close()
      }
    },
    TIMEOUT_MS,
  )
})
/** Fulfils when the process says that it listens. */
async function serve(mode: string, env: Record<string, string>): Promise<ChildProcess> {
  const { child, listening } = spawnServe(mode, env)
  children.push(child)
  await listening
  return child
}

function output(command: string, args: readonly string[]): Promise<string> {
  return new Promise((resolve) => {
    execFile(command, args, { encoding: 'utf8', maxBuffer: 1 << 24 }, (_, stdout) => resolve(stdout))
  })
}

async function until(isTrue: () => Promise<boolean>): Promise<void> {
  const deadline = Date.now() + 30_000
  while (!(await isTrue())) {
    if (Date.now() > deadline) throw new Error('not within 30 s')
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
}
