// The providers of examples/provider, each a process of its own over the same tables, are what the kit tests for, and serve behind the gateway.
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { Code, ConnectError, createClient, type Transport } from '@connectrpc/connect'
import { createGrpcTransport } from '@connectrpc/connect-node'
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from 'vitest'
import { SurveyProvider } from '../../gen/surveyauth/provider/v1/survey_provider_pb.js'
import { freePort } from '../harness/free-port.js'
import { createProcess, type Environment } from '../harness/process.js'
import { startService } from '../harness.js'
import { type Authority, createAuthority, materialOf, pemFiles } from '../rpc/certificates.js'
import { buildGo, hasGo, makeStubs, python, ROOT } from './toolchains.js'

vi.setConfig({ testTimeout: 60_000, hookTimeout: 300_000 }) // Go compiles what it imports

const FOLDER = path.join(ROOT, 'examples/provider')
const scratch = mkdtempSync(path.join(tmpdir(), 'survey-auth-provider-'))
afterAll(() => rmSync(scratch, { recursive: true, force: true }))

interface Language {
  readonly isHere: boolean
  /** Makes what it runs; returns the command. */
  readonly prepare: () => readonly string[]
}

const languages: Readonly<Record<string, Language>> = {
  Python: {
    isHere: python !== undefined,
    prepare() {
      makeStubs('examples/provider/python/provider.py', scratch)
      return [python ?? '', path.join(FOLDER, 'python/provider.py')]
    },
  },
  Go: {
    isHere: hasGo,
    prepare() {
      const program = buildGo('examples/provider/go/provider.go', path.join(scratch, 'go'), 'example.com/surveys')
      return [program, path.join(FOLDER, 'tables.sql')]
    },
  },
}

/** Once it says that it answers. */
async function start([program = '', ...args]: readonly string[], url: string, env: Environment = {}) {
  const { PATH = '', HOME = '' } = process.env
  const folder = mkdtempSync(path.join(scratch, 'run-'))
  const child: ChildProcess = spawn(program, [...args, path.join(FOLDER, 'demo.sql')], {
    env: {
      PATH,
      HOME,
      PYTHONPATH: path.join(scratch, 'stubs'),
      PYTHONDONTWRITEBYTECODE: '1',
      PROVIDER_DATABASE: path.join(folder, 'provider.db'),
      PROVIDER_LISTEN: url,
      ...env,
    },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  onTestFinished(() => void child.kill())
  if (child.stdout) expect(String((await once(child.stdout, 'data'))[0])).toBe(`answers at ${url}\n`)
  return child
}

const codeOf = (transport: Transport) =>
  createClient(SurveyProvider, transport)
    .getProviderInfo({}, { timeoutMs: 5_000 })
    .then(
      () => 'ok',
      (error: unknown) => Code[ConnectError.from(error).code],
    )

describe.each(Object.entries(languages))('the provider in %s', (_, { isHere, prepare }) => {
  let command: readonly string[]
  beforeAll(() => {
    if (isHere) command = prepare()
  })

  test.skipIf(!isHere)('is conformant with answers, over a socket that only its own user may open', async () => {
    const socket = path.join(mkdtempSync(path.join(scratch, 'socket-')), 'provider.sock')
    await start(command, `unix:${socket}`)
    expect(statSync(socket).mode & 0o777).toBe(0o600)
    const fixtures = ['--fixtures', path.join(FOLDER, 'fixtures.json')]
    const kit = await createProcess()
    const { exitCode, stdout } = await kit.run(['conformance', 'provider', '--url', `unix:${socket}`, ...fixtures])
    expect(stdout).toContain('claims: core, answers\n')
    expect(stdout).toMatch(/ → CONFORMANT\n$/)
    expect(exitCode).toBe(0)
  })

  test.skipIf(!isHere)(
    'is read through the gateway under load, killed and restarted; apps keep their tokens',
    async () => {
      const url = `unix:${path.join(mkdtempSync(path.join(scratch, 'socket-')), 'provider.sock')}`
      let provider = await start(command, url)
      const service = await startService({ env: { SURVEY_PROVIDER_URL: url } })
      const app = await service.createApp({ readsAnswers: true })
      const ming = await service.grantAccess({ app, user: await service.createUser({ externalId: '1001' }) })
      const { data } = await service.survey(ming, 501)
      expect(data).toMatchObject({ id: 501, title: 'Team lunch', suffix: 'See you there.' })
      expect(await service.survey(ming, 601)).toMatchObject({ type: 'survey_not_found' })
      const answers = await service.answers(ming, 501, { per_page: 7 })
      expect(answers.data).toMatchObject({ total: 40, last_answer_id: 7 })
      expect(await service.answers(ming, 601)).toMatchObject({ type: 'survey_not_found' })

      const calls = [
        () => service.surveys(ming),
        () => service.survey(ming, 501),
        () => service.answers(ming, 501, { per_page: 7 }),
      ]
      const outcomes = new Map<string, number>()
      let isOver = false
      const load = Array.from({ length: 8 }, async (_, index) => {
        while (!isOver) {
          const { type } = await (calls[index % calls.length] ?? expect.unreachable)()
          outcomes.set(type, (outcomes.get(type) ?? 0) + 1)
        }
      })
      for (let restart = 0; restart < 3; restart += 1) {
        await new Promise((resolve) => setTimeout(resolve, 500))
        provider.kill('SIGKILL')
        await once(provider, 'close')
        provider = await start(command, url)
      }
      await expect.poll(async () => (await service.survey(ming, 502)).code, { timeout: 10_000 }).toBe('OK')
      isOver = true
      await Promise.all(load)
      expect([...outcomes.keys()].filter((type) => !['', 'remote_server_error'].includes(type))).toEqual([])
      expect(outcomes.get('')).toBeGreaterThan(100)
    },
  )

  test.skipIf(!isHere)('ends when it is told to', async () => {
    const child = await start(command, `unix:${path.join(mkdtempSync(path.join(scratch, 'socket-')), 'provider.sock')}`)
    child.kill('SIGTERM')
    expect((await once(child, 'close'))[0]).toBe(0)
  })

  test.skipIf(!isHere)('answers over mTLS to a name that may call, and to no other', async () => {
    const authority = createAuthority()
    const port = await freePort()
    const folder = mkdtempSync(path.join(scratch, 'pem-'))
    const own = pemFiles(folder, materialOf(authority, authority.issue('DNS:localhost')))
    const env = { ...own, PROVIDER_CALLERS: 'other.test,survey.test' }
    await start(command, `https://localhost:${port}`, env)
    const as = (by: Authority, name: string) => {
      const nodeOptions = { ...by.issue(name), ca: authority.cert }
      return codeOf(createGrpcTransport({ baseUrl: `https://localhost:${port}`, nodeOptions }))
    }
    expect(await as(authority, 'DNS:survey.test')).toBe('ok')
    expect(await as(authority, 'DNS:gateway.test')).toBe('PermissionDenied')
    expect(['ok', 'PermissionDenied']).not.toContain(await as(createAuthority(), 'DNS:survey.test'))

    const kit = await createProcess(pemFiles(folder, materialOf(authority, authority.issue('DNS:survey.test'))))
    const about = ['--url', `https://localhost:${port}`, '--fixtures', path.join(FOLDER, 'fixtures.json')]
    const { stdout } = await kit.run(['conformance', 'provider', ...about, '--only', 'SP-01,SP-10'])
    expect(stdout, 'as survey-auth itself connects').toMatch(/core 2\/2,.* → PARTIAL\n$/)
  })
})
