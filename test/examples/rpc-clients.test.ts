// The clients of examples/rpc do what their comments say, against a real service: over a Unix socket, on loopback and over mTLS.
import { spawn } from 'node:child_process'
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from 'vitest'
import { SurveyService } from '../../gen/surveyauth/v1/survey_service_pb.js'
import { TokenService } from '../../gen/surveyauth/v1/token_service_pb.js'
import type { TlsMaterial } from '../../services/rpc/listener.js'
import { grantAccessOn, type SpawnedAccess } from '../harness/access.js'
import type { CommandResult } from '../harness/command-host.js'
import { freePort } from '../harness/free-port.js'
import { type Environment, startProcess } from '../harness/process.js'
import { createAuthority, pemFiles } from '../rpc/certificates.js'
import { buildGo, compileJava, hasGo, hasJava, makeStubs, python, ROOT } from './toolchains.js'

vi.setConfig({ testTimeout: 180_000 }) // spawns a service, the command line and every client

const FOLDER = path.join(ROOT, 'examples/rpc')
/** Fields for what these clients do not do: turn pages, read answers. */
const OTHER_NEEDS = ['page_token', 'skip', 'permission']
const TITLES = ['Team lunch', '满意度调查 & <feedback>']

/** A command that runs a client. */
interface Client {
  readonly command: readonly string[]
  readonly env?: Environment
}

const scratch = mkdtempSync(path.join(tmpdir(), 'survey-auth-examples-'))
const clients: Record<string, Client> = {
  'node-connect.js': { command: [process.execPath, 'node-connect.js'] },
  'node-grpc-js.js': { command: [process.execPath, 'node-grpc-js.js'] },
  'curl.sh': { command: ['sh', 'curl.sh'] },
}

beforeAll(() => {
  if (python) {
    makeStubs('examples/rpc/client.py', scratch)
    const env = { PYTHONPATH: path.join(scratch, 'stubs'), PYTHONDONTWRITEBYTECODE: '1' }
    clients['client.py'] = { command: [python, 'client.py'], env }
  }
  if (hasGo)
    clients['client.go'] = { command: [buildGo('examples/rpc/client.go', `${scratch}/go`, 'example.com/report')] }
  if (hasJava) clients['Client.java'] = { command: compileJava('examples/rpc/Client.java', `${scratch}/java`) }
}, 300_000)

afterAll(() => rmSync(scratch, { recursive: true, force: true }))

test.skipIf(!python || !hasGo || !hasJava)('every client of examples/rpc can run on this machine', () => {
  expect(Object.keys(clients).sort()).toEqual(readdirSync(FOLDER).sort())
})

/** Runs every client; the services are at `url`. */
async function runAll(access: SpawnedAccess, url: string, tls: Environment = {}) {
  const results: Record<string, CommandResult> = {}
  for (const [name, { command, env }] of Object.entries(clients)) {
    if (name === 'Client.java' && url.startsWith('unix:')) continue // Debian's netty has no native library for it
    const { appid: APPID, accessToken: ACCESS_TOKEN, openid: OPENID } = access
    const where = { TOKEN_SERVICE_URL: url, SURVEY_SERVICE_URL: url, ...tls }
    results[name] = await run(command, { ...where, APPID, ACCESS_TOKEN, OPENID, ...env })
  }
  return results
}

function run([program = '', ...args]: readonly string[], env: Environment): Promise<CommandResult> {
  const { PATH = '', HOME = '' } = process.env
  const locale = { LANG: 'C.UTF-8' }
  const child = spawn(program, args, { cwd: FOLDER, env: { PATH, HOME, ...locale, ...env } })
  const said = { stdout: '', stderr: '' }
  for (const stream of ['stdout', 'stderr'] as const) {
    child[stream].setEncoding('utf8').on('data', (text: string) => {
      said[stream] += text
    })
  }
  return new Promise((resolve, reject) => {
    child.on('error', reject)
    child.on('close', (code) => resolve({ exitCode: code ?? -1, ...said }))
  })
}

function expectRead(results: Record<string, CommandResult>, { openid, surveys }: SpawnedAccess): void {
  const stdout = `${[`${openid} snsapi_user`, ...surveys].join('\n')}\n`
  for (const [name, result] of Object.entries(results)) {
    const printed = name === 'curl.sh' ? linesOf(result.stdout) : result.stdout
    expect({ name, ...result, stdout: printed }).toEqual({ name, exitCode: 0, stdout, stderr: '' })
  }
}

/** What the other clients would print, from the two JSON answers that curl prints. */
function linesOf(stdout: string): string {
  const [token = '{}', surveys = '{}'] = stdout.split('\n')
  const { openid, scope } = JSON.parse(token) as { openid: string; scope: string }
  const { surveys: list = [] } = JSON.parse(surveys) as { surveys?: { id: string; title: string }[] }
  return `${[`${openid} ${scope}`, ...list.map(({ id, title }) => `${id} ${title}`)].join('\n')}\n`
}

describe('every client of examples/rpc that this machine can run', () => {
  test('verifies a token and lists surveys over the Unix socket, and tells why a token is refused', async () => {
    const service = await startProcess()
    const access = await grantAccessOn(service, TITLES)
    const url = `unix:${path.join(service.dataDir, 'rpc.sock')}`
    expectRead(await runAll(access, url), access)

    const badToken = `${access.accessToken.slice(0, -1)}~`
    const refused = await runAll({ ...access, accessToken: badToken }, url)
    for (const [name, { exitCode, stdout, stderr }] of Object.entries(refused)) {
      expect(exitCode, `${name}: ${stdout}`).not.toBe(0)
      expect(`${stdout}${stderr}`, name).toMatch(/unauthenticated/i)
      expect(`${stdout}${stderr}`, name).not.toContain(badToken)
    }
  })

  test('does the same on loopback', async () => {
    const url = `http://127.0.0.1:${await freePort()}`
    const service = await startProcess({ RPC_LISTEN: url })
    const access = await grantAccessOn(service, TITLES)
    expectRead(await runAll(access, url), access)
  })

  test('does the same over mTLS, with the certificate of a verifier and with no other', async () => {
    const authority = createAuthority()
    const port = await freePort()
    const server = authority.issue('DNS:localhost')
    const service = await startProcess({
      RPC_LISTEN: `https://127.0.0.1:${port}`,
      RPC_CALLERS: 'verifier=DNS:report.test;gateway=DNS:gateway.test',
      ...tlsFiles({ ...server, ca: authority.cert }),
    })
    const access = await grantAccessOn(service, TITLES)
    const as = (name: string) =>
      runAll(access, `https://localhost:${port}`, tlsFiles({ ...authority.issue(name), ca: authority.cert }))
    expectRead(await as('DNS:report.test'), access)
    for (const [name, { exitCode, stdout }] of Object.entries(await as('DNS:gateway.test'))) {
      expect(exitCode, `${name}: a gateway may not verify`).not.toBe(0)
      expect(stdout, name).not.toContain(access.openid)
    }
  })
})

describe('the text of every client', () => {
  const texts = readdirSync(FOLDER)
    .filter((name) => !name.startsWith('.'))
    .map((name) => [name, readFileSync(path.join(FOLDER, name), 'utf8')] as const)

  test.each(texts)('%s says above its code what to retry, which deadline to use and how to get stubs', (_, text) => {
    for (const word of ['Stubs', 'Retry: ', 'Deadline: ']) expect(text.slice(0, 2_000)).toContain(word)
  })

  test.each(texts)('%s calls methods and fields that the protos have', (_, text) => {
    const words = text.toLowerCase().replaceAll('_', '')
    for (const { name, input } of [TokenService.method.verifyAccessToken, SurveyService.method.listSurveys]) {
      expect(words).toContain(name.toLowerCase())
      const fields = input.fields.filter(({ name }) => !OTHER_NEEDS.includes(name))
      for (const field of fields) expect(words).toContain(field.name.replaceAll('_', ''))
    }
  })
})

/** Writes PEM files and names them as the service and the clients want them named. */
function tlsFiles(material: TlsMaterial): Environment {
  const folder = mkdtempSync(path.join(tmpdir(), 'survey-auth-pem-'))
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
  return pemFiles(folder, material)
}
