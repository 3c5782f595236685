// A network between gateway and token service that swallows everything without closing anything, like a dead host or a
// firewall that lost its state; and one that works again for new connections only.
import { mkdtempSync, rmSync } from 'node:fs'
import net from 'node:net'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { Writable } from 'node:stream'
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import type { Running } from '../../bin/compose/running.js'
import { start } from '../../bin/compose/start.js'
import { readConfig } from '../../bin/config.js'
import { TokenService } from '../../gen/surveyauth/v1/token_service_pb.js'
import { clientOf } from '../../services/rpc/client.js'
import { MultiplexTransport } from '../../services/rpc/multiplex-transport.js'

const ROUNDS = Number(process.env.HALF_OPEN_ROUNDS ?? 3)
const BACK_WITHIN_MS = 5_000
const ANSWER_WITHIN_MS = 5_500 // the RPC deadline of 4.5 s, and time for a busy machine

/** Carries bytes until told to swallow those of the existing connections. */
class Network {
  readonly #server: net.Server
  #pairs: { readonly sides: readonly net.Socket[]; isSwallowing: boolean }[] = []
  #swallowsNew = false

  constructor(private readonly targetPort: () => number) {
    this.#server = net.createServer((near) => {
      const far = net.connect(this.targetPort(), '127.0.0.1')
      const pair = { sides: [near, far], isSwallowing: this.#swallowsNew }
      this.#pairs.push(pair)
      for (const [from, to] of [
        [near, far],
        [far, near],
      ] as const) {
        from.on('data', (chunk) => {
          if (!pair.isSwallowing) to.write(chunk)
        })
        from.on('close', () => {
          if (!pair.isSwallowing) to.destroy()
        })
        from.on('error', () => undefined)
      }
    })
  }

  listen(): Promise<number> {
    return new Promise((resolve) => {
      this.#server.listen(0, '127.0.0.1', () => resolve((this.#server.address() as net.AddressInfo).port))
    })
  }

  swallow(): void {
    for (const pair of this.#pairs) pair.isSwallowing = true
  }

  /** Whether to swallow the bytes of future connections, too. */
  swallowNew(doesSo: boolean): void {
    this.#swallowsNew = doesSo
  }

  close(): void {
    this.#server.close()
    for (const { sides } of this.#pairs) for (const side of sides) side.destroy()
    this.#pairs = []
  }
}

const dataDir = mkdtempSync(path.join(tmpdir(), 'survey-auth-half-open-'))
let tokenPort = 0
let networkPort = 0
const network = new Network(() => tokenPort)
let token: Running
let gateway: Running

beforeAll(async () => {
  const logStream = new Writable({ write: (_chunk, _encoding, done) => done() })
  const base = { DATA_DIR: dataDir, PORT: '0', ADMIN_PORT: '0', RATE_LIMIT: 'off' }
  token = await start('token', readConfig({ ...base, RPC_LISTEN: 'http://127.0.0.1:0' }), { logStream })
  tokenPort = Number(new URL(token.rpcAddress ?? '').port)
  networkPort = await network.listen()
  const address = `http://127.0.0.1:${networkPort}`
  gateway = await start('gateway', readConfig({ ...base, TOKEN_SERVICE_URL: address }), { logStream })
})
afterAll(async () => {
  network.close()
  await gateway.close()
  await token.close()
  rmSync(dataDir, { recursive: true, force: true })
})

const READ = '/api/oauth2/user?appid=app_x&access_token=sat_x&openid=o'
const EXCHANGE = '/api/oauth2/access_token?appid=app_x&secret=sas_x&code=sac_x&grant_type=authorization_code'

async function ask(target = READ): Promise<{ type: string; ms: number }> {
  const startedAt = performance.now()
  const answer = await fetch(gateway.url + target)
  const { error } = (await answer.json()) as { error: { type: string } }
  return { type: error.type, ms: performance.now() - startedAt }
}

test('when a connection goes dead, reads are sent again over the next one and an exchange is answered 503', async () => {
  expect((await ask()).type).toBe('invalid_appid')
  for (let round = 0; round < ROUNDS; round += 1) {
    network.swallow()
    const deadAt = performance.now()
    const [read, exchange] = await Promise.all([ask(READ), ask(EXCHANGE)])
    expect([read.type, exchange.type]).toEqual(['invalid_appid', 'remote_server_error'])
    expect(Math.max(read.ms, exchange.ms)).toBeLessThan(ANSWER_WITHIN_MS)
    expect((await ask(EXCHANGE)).type).toBe('invalid_appid')
    expect(performance.now() - deadAt).toBeLessThan(BACK_WITHIN_MS)
  }
}, 300_000)

function openTransport(defaultTimeoutMs: number) {
  const transport = new MultiplexTransport({
    address: { kind: 'plaintext', host: '127.0.0.1', port: networkPort },
    tls: undefined,
    maxRequestBytes: 1024,
    maxResponseBytes: 1024,
    defaultTimeoutMs,
  })
  onTestFinished(() => transport.close())
  return transport
}

test('a connection that goes dead while idle is noticed by health checks alone', async () => {
  const transport = openTransport(1_000)
  expect(await transport.whyNotServing()).toBeUndefined()
  network.swallow()
  expect(await transport.whyNotServing()).toBeDefined()
  await expect.poll(() => transport.whyNotServing(), { timeout: 15_000 }).toBeUndefined()
})

describe('a connection that goes dead while it is being established is replaced', () => {
  test('for calls, which wait for the new one', async () => {
    network.swallowNew(true)
    const { verifyAccessToken } = clientOf(TokenService, openTransport(10_000).invoke)
    const call = verifyAccessToken({ appid: 'app_x', accessToken: 'sat_x' })
    setTimeout(() => network.swallowNew(false), 500)
    await expect(call).rejects.toThrow('the appid is unknown or disabled')
  })

  test('for health checks', async () => {
    network.swallowNew(true)
    const transport = openTransport(1_000)
    expect(await transport.whyNotServing()).toBeDefined()
    network.swallowNew(false)
    await expect.poll(() => transport.whyNotServing(), { timeout: 15_000 }).toBeUndefined()
  })
})
