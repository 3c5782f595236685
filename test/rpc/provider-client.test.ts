// How we call the provider of a platform: deadline, retry, breaker, and who may be at the other end.
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { create } from '@bufbuild/protobuf'
import { Code } from '@connectrpc/connect'
import * as grpc from '@grpc/grpc-js'
import { beforeAll, describe, expect, onTestFinished, test, vi } from 'vitest'
import { createProviderClient, introduce } from '../../bin/compose/provider-part.js'
import { readConfig } from '../../bin/config.js'
import { GetSurveyRequestSchema, SurveyProvider } from '../../gen/surveyauth/provider/v1/survey_provider_pb.js'
import { parseAddress } from '../../services/rpc/address.js'
import { Breaker, FAILURES_THAT_OPEN, TRIED_EVERY_MS } from '../../services/survey/provider/breaker.js'
import {
  PROVIDER_DEADLINE_MS,
  type ProviderCall,
  type ProviderClient,
} from '../../services/survey/provider/provider-client.js'
import { ProviderFailure } from '../../services/survey/provider/provider-failure.js'
import { freePort } from '../harness/free-port.js'
import { never, owning, startSurveyProvider, status } from '../harness/survey-provider.js'
import { type Authority, createAuthority, materialOf, pemFiles } from './certificates.js'

const good = owning({ ana: [{ id: 7n, title: 'x' }] })
const request = create(GetSurveyRequestSchema, { owner: { externalId: 'ana' }, surveyId: 7n })

function clientOf(url: string, env: Readonly<Record<string, string>> = {}) {
  const calls: ProviderCall[] = []
  const client = createProviderClient(readConfig(env), parseAddress(url), (call) => calls.push(call))
  onTestFinished(() => client.close())
  return { client, calls }
}

interface Told {
  readonly outcome: ProviderFailure['outcome'] | 'ok'
  readonly detail?: string
  readonly ms: number
}

/** What comes of one call. */
async function ask(client: ProviderClient, signal?: AbortSignal, withinMs = 10_000): Promise<Told> {
  const startedAt = performance.now()
  const call = { requestId: 'r-12345678', traceparent: '', signal, deadlineMs: startedAt + withinMs }
  const told = await client
    .ask(SurveyProvider.method.getSurvey, request, call, () => ({ outcome: 'ok' }) as const)
    .catch((error: unknown) => {
      if (!(error instanceof ProviderFailure)) throw error
      return { outcome: error.outcome, detail: error.message }
    })
  return { ...told, ms: performance.now() - startedAt }
}

async function provider(...args: Parameters<typeof startSurveyProvider>) {
  const started = await startSurveyProvider(...args)
  onTestFinished(() => started.kill())
  return started
}

describe('the breaker', () => {
  const fail = (breaker: Breaker, times: number) => {
    for (let count = 0; count < times; count += 1) breaker.failed()
  }

  test('opens after failures in a row, and lets one call through in a time', () => {
    let now = 0
    const breaker = new Breaker(() => now)
    fail(breaker, FAILURES_THAT_OPEN - 1)
    breaker.answered()
    fail(breaker, FAILURES_THAT_OPEN - 1)
    expect([breaker.isOpen, breaker.letsThrough()]).toEqual([false, true])
    fail(breaker, 1)
    expect([breaker.isOpen, breaker.letsThrough()]).toEqual([true, false])
    now += TRIED_EVERY_MS - 1
    expect(breaker.letsThrough()).toBe(false)
    now += 1
    expect([breaker.letsThrough(), breaker.letsThrough()]).toEqual([true, false])
    fail(breaker, 1)
    expect(breaker.letsThrough()).toBe(false)
    now += TRIED_EVERY_MS
    expect(breaker.letsThrough()).toBe(true)
    breaker.answered()
    expect([breaker.isOpen, breaker.letsThrough(), breaker.letsThrough()]).toEqual([false, true, true])
  })

  test('does not stay open where nobody calls: after a minute a failure says nothing about now', () => {
    let now = 0
    const breaker = new Breaker(() => now)
    fail(breaker, FAILURES_THAT_OPEN)
    now += 59_999
    expect(breaker.isOpen).toBe(true)
    now += 1
    expect(breaker.isOpen).toBe(false)
    fail(breaker, FAILURES_THAT_OPEN - 1)
    expect(breaker.isOpen).toBe(false)
  })
})

describe('a provider', () => {
  test('that is restarted meanwhile is waited for', async () => {
    const at = `127.0.0.1:${await freePort()}`
    const first = await startSurveyProvider(good, { at })
    const { client } = clientOf(`http://${at}`)
    expect((await ask(client)).outcome).toBe('ok')
    await first.kill()
    const asked = ask(client)
    setTimeout(() => void provider(good, { at }), 400)
    expect((await asked).outcome).toBe('ok')
  })

  test('that is gone is asked no more than now and then, and found when it is back', async () => {
    const at = `127.0.0.1:${await freePort()}`
    const { client, calls } = clientOf(`http://${at}`)
    const first = await Promise.all(Array.from({ length: FAILURES_THAT_OPEN }, () => ask(client)))
    for (const { outcome, detail, ms } of first) {
      expect({ outcome, detail }).toEqual({ outcome: Code.Unavailable, detail: `connect ECONNREFUSED ${at}` })
      expect(ms).toBeLessThan(PROVIDER_DEADLINE_MS + 500)
    }
    expect(client.isBreakerOpen).toBe(true)
    expect(await ask(client)).toMatchObject({ outcome: 'not_asked', ms: expect.toSatisfy((ms) => ms < 100) })
    expect(calls.map(({ failure }) => failure?.outcome)).toContain('not_asked')
    await provider(good, { at })
    await expect.poll(async () => (await ask(client)).outcome, { timeout: 10_000 }).toBe('ok')
    expect(client.isBreakerOpen).toBe(false)
  })

  test.each([
    ['accepts connections and says nothing', undefined],
    ['takes calls and says nothing', never],
    ['says UNAVAILABLE, then nothing', 'then nothing'],
  ])('that %s costs a call its deadline, and not twice', async (_, how) => {
    const silent = createServer().listen(0, '127.0.0.1')
    onTestFinished(() => void silent.close())
    await once(silent, 'listening')
    let isFirst = true
    const getSurvey = () => {
      if (how !== 'then nothing' || !isFirst) return never()
      isFirst = false
      throw status('UNAVAILABLE')
    }
    const mute = how === undefined ? undefined : await provider({ ...good, getSurvey })
    const { client } = clientOf(mute?.url ?? `http://127.0.0.1:${(silent.address() as { port: number }).port}`)
    const { outcome, ms } = await ask(client)
    expect(outcome).toBe(how === 'then nothing' ? Code.Unavailable : Code.DeadlineExceeded)
    expect(ms).toBeGreaterThan(PROVIDER_DEADLINE_MS - 50)
    expect(ms).toBeLessThan(PROVIDER_DEADLINE_MS + 500)
  })

  test('is not waited for beyond the deadline of the call because of which it is asked', async () => {
    const { url } = await provider({ ...good, getSurvey: never })
    expect((await ask(clientOf(url).client, undefined, 300)).ms).toBeLessThan(1_000)
  })

  test('that hung for so long that the breaker opened is found over a new connection', async () => {
    const hanging = await provider({ ...good, getSurvey: never })
    const { client } = clientOf(hanging.url)
    await Promise.all(Array.from({ length: FAILURES_THAT_OPEN }, () => ask(client)))
    expect(client.isBreakerOpen).toBe(true)
    hanging.behaviour.getSurvey = good.getSurvey
    await expect.poll(async () => (await ask(client)).outcome, { timeout: 10_000 }).toBe('ok')
  })

  test('that answers, however badly, is asked on', async () => {
    const { url } = await provider({ ...good, getSurvey: () => Promise.reject(status('INTERNAL')) })
    const { client } = clientOf(url)
    for (let count = 0; count < 2 * FAILURES_THAT_OPEN; count += 1)
      expect((await ask(client)).outcome).toBe(Code.Internal)
    expect(client.isBreakerOpen).toBe(false)
  })

  test('is not blamed for callers that go away, and told of them', async () => {
    const cancelled = vi.fn()
    const { url } = await provider({ ...good, getSurvey: never }, { onCancelled: cancelled })
    const { client } = clientOf(url)
    for (let count = 0; count < FAILURES_THAT_OPEN; count += 1) {
      expect((await ask(client, AbortSignal.timeout(50))).outcome).toBe(Code.Canceled)
    }
    expect((await ask(client, AbortSignal.abort())).outcome).toBe(Code.Canceled)
    expect(client.isBreakerOpen).toBe(false)
    await vi.waitFor(() => expect(cancelled).toHaveBeenCalledTimes(FAILURES_THAT_OPEN))
  })

  test('is reached over a socket too', async () => {
    const folder = mkdtempSync(path.join(tmpdir(), 'survey-auth-provider-'))
    onTestFinished(() => rmSync(folder, { recursive: true }))
    const { url } = await provider(good, { at: `unix:${folder}/p.sock` })
    expect((await ask(clientOf(url).client)).outcome).toBe('ok')
  })

  test.each([
    ['that introduces itself', good.getProviderInfo, { good: 'ACME Surveys 4.2, without answers' }],
    ['with answers', () => ({ name: 'x', capabilities: [1] }), { good: 'x, with answers' }],
    ['with capabilities of a later version', () => ({ name: 'x', capabilities: [77] }), { good: 'x, without answers' }],
    ['without a name', () => ({}), { cause: 'the answer to GetProviderInfo is no good: name: at least 1 characters' }],
    ['that hangs', never, { cause: expect.stringMatching(/^GetProviderInfo is not answered in time: /) }],
    [
      'that does not know us',
      () => Promise.reject(status('PERMISSION_DENIED', 'who are you')),
      { cause: 'it does not let this process call: who are you' },
    ],
    [
      'of something else',
      () => Promise.reject(status('UNIMPLEMENTED', 'no')),
      { cause: 'it serves no surveyauth.provider.v1.SurveyProvider: no' },
    ],
  ] as const)('%s is described so', async (_, getProviderInfo, described) => {
    const { url } = await provider({ ...good, getProviderInfo })
    expect(await introduce(clientOf(url).client)).toMatchObject(described)
  })
})

describe('over mTLS', () => {
  let authority: Authority
  beforeAll(() => {
    authority = createAuthority()
  })
  const ROLES = 'survey_provider=DNS:platform.test;gateway=DNS:gateway.test'

  async function overTls(serverName: string, by: Authority = authority) {
    const { cert, key } = by.issue(serverName)
    const pair = { cert_chain: Buffer.from(cert), private_key: Buffer.from(key) }
    const credentials = grpc.ServerCredentials.createSsl(Buffer.from(authority.cert), [pair], true)
    const started = await provider(good, { credentials })
    const folder = mkdtempSync(path.join(tmpdir(), 'survey-auth-provider-'))
    onTestFinished(() => rmSync(folder, { recursive: true }))
    const files = pemFiles(folder, materialOf(authority, authority.issue('DNS:survey.test')))
    return { started, files, ...clientOf(started.url, { ...files, RPC_CALLERS: ROLES }) }
  }

  test('a server with the role survey_provider is asked, by the certificate of this process', async () => {
    const { client, started } = await overTls('DNS:platform.test,IP:127.0.0.1')
    expect((await ask(client)).outcome).toBe('ok')
    expect(started.calls[0]?.caller).toBe('DNS:survey.test')
    client.reconnect()
    expect((await ask(client)).outcome).toBe('ok')
  })

  test('while the certificates cannot be read it is called with those in use, also by a breaker that connects anew', async () => {
    const { client, started, files } = await overTls('DNS:platform.test,IP:127.0.0.1')
    expect((await ask(client)).outcome).toBe('ok')
    rmSync(files.RPC_TLS_CERT ?? '')
    await started.kill()
    for (let call = 0; call < 12; call += 1) expect((await ask(client)).outcome).not.toBe('ok')
    expect(client.isBreakerOpen).toBe(true)
  })

  test.each([
    ['another role', 'DNS:gateway.test,IP:127.0.0.1'],
    ['no role', 'DNS:stranger.test,IP:127.0.0.1'],
    ['no name but its address', 'IP:127.0.0.1'],
  ])('a server with %s is not asked', async (_, name) => {
    const { client, started } = await overTls(name)
    const { outcome, detail } = await ask(client)
    expect(outcome).toBe(Code.Unavailable)
    expect(detail).toBe('its certificate does not have the role survey_provider: see RPC_CALLERS')
    expect(await introduce(client)).toEqual({ cause: detail })
    expect(started.calls).toEqual([])
  })

  test('a server whose certificate does not name its address is not asked, whatever its role', async () => {
    const { client } = await overTls('DNS:platform.test')
    expect((await ask(client)).detail).toContain("does not match certificate's altnames")
  })

  test('a server of another authority is not asked', async () => {
    const { client } = await overTls('DNS:platform.test,IP:127.0.0.1', createAuthority())
    expect(await ask(client)).toMatchObject({
      outcome: Code.Unavailable,
      detail: expect.stringContaining('certificate'),
    })
  })
})
