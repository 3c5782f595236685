// The providers of examples/provider, each a process of its own over the same tables, answer as the contract says.
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync, statSync } from 'node:fs'
import net from 'node:net'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { type Client, Code, ConnectError, createClient } from '@connectrpc/connect'
import { createGrpcTransport } from '@connectrpc/connect-node'
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from 'vitest'
import { ProviderCapability, SurveyProvider } from '../../gen/surveyauth/provider/v1/survey_provider_pb.js'
import { freePort } from '../harness/free-port.js'
import { createProcess, type Environment } from '../harness/process.js'
import { type Authority, createAuthority, materialOf, pemFiles } from '../rpc/certificates.js'
import { buildGo, hasGo, makeStubs, python, ROOT } from './toolchains.js'

vi.setConfig({ testTimeout: 60_000, hookTimeout: 300_000 }) // Go compiles what it imports

const FOLDER = path.join(ROOT, 'examples/provider')
const scratch = mkdtempSync(path.join(tmpdir(), 'survey-auth-provider-'))
afterAll(() => rmSync(scratch, { recursive: true, force: true }))

const OURS = { owner: { externalId: '1001' } }
const nobody = { owner: { externalId: 'nobody' } }
const TOO_LARGE = 2n ** 53n

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
  if (child.stdout) expect(String((await once(child.stdout, 'data'))[0])).toBe(`answers at ${url}\n`)
  return child
}

function overSocket(socket: string): Client<typeof SurveyProvider> {
  const nodeOptions = { createConnection: () => net.connect(socket) }
  return createClient(SurveyProvider, createGrpcTransport({ baseUrl: 'http://localhost', nodeOptions }))
}

const codeOf = (work: Promise<unknown>) =>
  work.then(
    () => 'ok',
    (error: unknown) => Code[ConnectError.from(error).code],
  )

describe.each(Object.entries(languages))('the provider in %s', (_, { isHere, prepare }) => {
  describe.skipIf(!isHere)('over a Unix socket', () => {
    let provider: Client<typeof SurveyProvider>
    let child: ChildProcess
    let command: readonly string[]
    const socket = path.join(mkdtempSync(path.join(scratch, 'socket-')), 'provider.sock')

    beforeAll(async () => {
      command = prepare()
      child = await start(command, `unix:${socket}`)
      provider = overSocket(socket)
    })
    afterAll(() => void child.kill())

    test('says who it is and that it has answers; only its own user may open the socket', async () => {
      const info = await provider.getProviderInfo({})
      expect(info).toMatchObject({ version: '1.0', capabilities: [ProviderCapability.ANSWERS] })
      expect(statSync(socket).mode & 0o777).toBe(0o600)
    })

    test('lists the surveys of an owner ascending by id, with the owner as stored', async () => {
      const { surveys, totalSize } = await provider.listSurveys({ ...OURS, offset: 0n, limit: 100 })
      expect(surveys.map(({ survey, owner }) => [survey?.id, survey?.title, owner?.externalId])).toEqual([
        [501n, 'Team lunch', '1001'],
        [502n, '满意度调查', '1001'],
      ])
      expect(totalSize).toBe(2n)
      const second = await provider.listSurveys({ ...OURS, offset: 1n, limit: 1 })
      expect(second.surveys.map(({ survey }) => survey?.id)).toEqual([502n])
      const past = await provider.listSurveys({ ...OURS, offset: 2n ** 53n - 1n, limit: 1 })
      expect(past).toMatchObject({ surveys: [], totalSize: 2n })
      expect(await provider.listSurveys({ ...nobody, limit: 1 })).toMatchObject({ surveys: [], totalSize: 0n })
      expect(await provider.listSurveys({ owner: { userId: 'u' }, limit: 1 })).toMatchObject({ surveys: [] })
    })

    test('gives a survey in full', async () => {
      const { survey, owner } = await provider.getSurvey({ ...OURS, surveyId: 501n })
      expect(survey).toMatchObject({ id: 501n, hash: 'a501', title: 'Team lunch', suffix: 'See you there.' })
      expect(survey?.pages[0]?.questions.map(({ type }) => type)).toEqual(['radio', 'star'])
      expect(owner?.externalId).toBe('1001')
    })

    test('gives the answers in pages, and those of a time', async () => {
      const all: bigint[] = []
      for (;;) {
        const request = { ...OURS, surveyId: 501n, afterAnswerId: all.at(-1) ?? 0n, limit: 7 }
        const { answers, totalSize } = await provider.listAnswers(request)
        expect(totalSize).toBe(40n)
        if (answers.length === 0) break
        all.push(...answers.map(({ answerId }) => answerId))
      }
      expect(all).toEqual(Array.from({ length: 40 }, (_, index) => BigInt(index + 1)))

      const at = (id: bigint, nanos = 0) => ({ seconds: 1_772_539_200n + id * 60n, nanos })
      const idsOf = async (since: ReturnType<typeof at>, until: ReturnType<typeof at>) => {
        const { answers } = await provider.listAnswers({ ...OURS, surveyId: 501n, limit: 1_000, since, until })
        return answers.map(({ answerId }) => answerId)
      }
      expect(await idsOf(at(3n), at(5n))).toEqual([3n, 4n])
      expect(await idsOf(at(3n, 1), at(5n, 1)), 'one nanosecond later').toEqual([4n, 5n])
    })

    test('gives one answer', async () => {
      const { answer, owner } = await provider.getAnswer({ ...OURS, surveyId: 501n, answerId: 4n })
      expect(answer).toMatchObject({
        answerId: 4n,
        surveyId: 501n,
        respondentId: 'r-4',
        endTime: { seconds: 1_772_539_440n },
      })
      expect(answer?.pages[0]?.questions[1]).toMatchObject({ id: 'q-2', type: 'star', text: '5' })
      expect(owner?.externalId).toBe('1001')
    })

    test('answers alike for what is foreign and what is missing', async () => {
      for (const surveyId of [601n, 999n]) {
        expect(await codeOf(provider.getSurvey({ ...OURS, surveyId }))).toBe('NotFound')
        expect(await codeOf(provider.listAnswers({ ...OURS, surveyId, limit: 1 }))).toBe('NotFound')
        expect(await codeOf(provider.getAnswer({ ...OURS, surveyId, answerId: 1n }))).toBe('NotFound')
      }
      expect(await codeOf(provider.getAnswer({ ...OURS, surveyId: 501n, answerId: 41n }))).toBe('NotFound')
      expect(await codeOf(provider.getSurvey({ ...nobody, surveyId: 501n }))).toBe('NotFound')
    })

    const survey = { ...OURS, surveyId: 501n }
    const tooMany = { owner: { externalId: 'x'.repeat(256) } }
    test.each<[string, (at: Client<typeof SurveyProvider>) => Promise<unknown>]>([
      ['no owner', (at) => at.listSurveys({ limit: 1 })],
      ['an owner with a long id', (at) => at.listSurveys({ ...tooMany, limit: 1 })],
      ['a limit of 0', (at) => at.listSurveys(OURS)],
      ['a limit of 101', (at) => at.listSurveys({ ...OURS, limit: 101 })],
      ['an offset below 0', (at) => at.listSurveys({ ...OURS, limit: 1, offset: -1n })],
      ['an offset that is too large', (at) => at.listSurveys({ ...OURS, limit: 1, offset: TOO_LARGE })],
      ['no survey', (at) => at.getSurvey(OURS)],
      ['a survey that is too large', (at) => at.getSurvey({ ...OURS, surveyId: TOO_LARGE })],
      ['no limit of answers', (at) => at.listAnswers(survey)],
      ['a limit of 1,001 answers', (at) => at.listAnswers({ ...survey, limit: 1_001 })],
      ['answers after one below 0', (at) => at.listAnswers({ ...survey, limit: 1, afterAnswerId: -1n })],
      ['no answer', (at) => at.getAnswer(survey)],
      ['an answer that is too large', (at) => at.getAnswer({ ...survey, answerId: TOO_LARGE })],
    ])('refuses %s', async (_, call) => {
      expect(await codeOf(call(provider))).toBe('InvalidArgument')
    })

    test('is conformant', async () => {
      const kit = [
        'conformance',
        'provider',
        '--url',
        `unix:${socket}`,
        '--fixtures',
        path.join(FOLDER, 'fixtures.json'),
      ]
      const { exitCode, stdout } = await (await createProcess()).cli(kit)
      expect(stdout).toMatch(/\ncore (\d+)\/\1 · answers (\d+)\/\2 → CONFORMANT\n$/)
      expect(exitCode).toBe(0)
    })

    test('takes over the socket of one that was killed, and ends when it is told to', async () => {
      child.kill('SIGKILL')
      await once(child, 'close')
      child = await start(command, `unix:${socket}`)
      expect(await codeOf(overSocket(socket).getProviderInfo({}))).toBe('ok')
      child.kill('SIGTERM')
      expect((await once(child, 'close'))[0]).toBe(0)
    })
  })

  test.skipIf(!isHere)('answers over mTLS to a name that may call, and to no other', async () => {
    const authority = createAuthority()
    const port = await freePort()
    const folder = mkdtempSync(path.join(scratch, 'pem-'))
    const own = pemFiles(folder, materialOf(authority, authority.issue('DNS:localhost')))
    const env = { ...own, PROVIDER_CALLERS: 'other.test,survey.test' }
    const child = await start(prepare(), `https://localhost:${port}`, env)
    onTestFinished(() => void child.kill())
    const as = (by: Authority, name: string) => {
      const nodeOptions = { ...by.issue(name), ca: authority.cert }
      const transport = createGrpcTransport({ baseUrl: `https://localhost:${port}`, nodeOptions })
      return codeOf(createClient(SurveyProvider, transport).getProviderInfo({}, { timeoutMs: 5_000 }))
    }
    expect(await as(authority, 'DNS:survey.test')).toBe('ok')
    expect(await as(authority, 'DNS:gateway.test')).toBe('PermissionDenied')
    expect(['ok', 'PermissionDenied']).not.toContain(await as(createAuthority(), 'DNS:survey.test'))
  })
})
