// Certificates that are replaced while processes run, and callers whose certificate is rejected, as the log shows them.
import { once } from 'node:events'
import net from 'node:net'
import { PassThrough } from 'node:stream'
import tls from 'node:tls'
import { expect, onTestFinished, test, vi } from 'vitest'
import { connectTo } from '../../bin/compose/remote.js'
import { start } from '../../bin/compose/start.js'
import { watchTls } from '../../bin/compose/tls.js'
import { readConfig } from '../../bin/config.js'
import { createLog } from '../../bin/telemetry/log.js'
import { createMetrics } from '../../bin/telemetry/metrics.js'
import { endOf } from '../../bin/tls-files.js'
import { parseAddress } from '../../services/rpc/address.js'
import { collectLog } from '../harness/collect-log.js'
import { freezeTime } from '../harness/freeze-time.js'
import { temporaryDirectory } from '../store/temporary-directory.js'
import { type Authority, createAuthority, materialOf, pemFiles } from './certificates.js'

const materialBy = (authority: Authority) => materialOf(authority, authority.issue('IP:127.0.0.1,DNS:gateway.test'))

/** All services behind TLS, and a gateway that reaches them through a port that counts its connections. */
async function open(authority: Authority) {
  const folder = temporaryDirectory()
  const files = pemFiles(folder, materialBy(authority))
  const env = { DATA_DIR: folder, PORT: '0', ADMIN_PORT: '0', RPC_CALLERS: 'gateway=DNS:gateway.test', ...files }
  const { logStream, lines } = collectLog()
  const all = await start('all', readConfig({ ...env, RPC_LISTEN: 'https://127.0.0.1:0' }), { logStream })
  onTestFinished(() => all.close())
  const port = Number(new URL(all.rpcAddress ?? '').port)
  let connections = 0
  const relay = net.createServer((near) => {
    connections += 1
    const far = net.connect(port, '127.0.0.1')
    near.pipe(far).pipe(near)
    for (const side of [near, far]) side.on('error', () => [near, far].map((each) => each.destroy()))
  })
  relay.listen(0, '127.0.0.1')
  await once(relay, 'listening')
  onTestFinished(() => void relay.close())
  const url = `https://127.0.0.1:${(relay.address() as net.AddressInfo).port}`
  const services = { TOKEN_SERVICE_URL: url, SURVEY_SERVICE_URL: url }
  const gateway = await start('gateway', readConfig({ ...env, ...services }), { logStream })
  onTestFinished(() => gateway.close())
  const logged = (text: string) => {
    const written = lines.join('').split('\n').filter(Boolean)
    return written.map((line): string => JSON.parse(line).msg).filter((msg) => msg.includes(text))
  }
  /** Waits until the gateway is ready; returns how many connections it has made. */
  const made = async () => {
    await expect.poll(() => gateway.readiness(), { timeout: 20_000 }).toEqual({ isReady: true, lacks: [] })
    return connections
  }
  return { folder, port, logged, made, env }
}

test('changed certificate files are used from SIGHUP on, by servers and by connections to them', async () => {
  const { folder, port, logged, made, env } = await open(createAuthority())
  const before = await made()
  process.emit('SIGHUP')
  expect(await made(), 'nothing has changed').toBe(before)
  const told = logged('ends at').length // within a month, and each process tells

  pemFiles(folder, materialBy(createAuthority()))
  process.emit('SIGHUP')
  await expect.poll(made, { timeout: 20_000 }).toBe(2 * before)
  expect(logged('ends at')).toHaveLength(2 * told)
  expect(logged('the certificate files have changed')).toHaveLength(2)
  const late = connectTo('token', [parseAddress(`https://127.0.0.1:${port}`)], readConfig(env), 'gateway')
  onTestFinished(() => late.close())
  expect(await late.absent()).toEqual([])
  process.emit('SIGHUP')
  expect(await made(), 'nothing has changed again').toBe(2 * before)

  pemFiles(folder, { cert: 'half of one' })
  process.emit('SIGHUP')
  expect(logged('the certificates could not be read again')).toHaveLength(2)
  expect(await made()).toBe(2 * before)
}, 60_000)

test('the log warns of a certificate from a week before its end, once a day, even if the process started long before', () => {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval', 'Date'] })
  onTestFinished(() => void vi.useRealTimers())
  const authority = createAuthority()
  const material = materialOf(authority, authority.issue('DNS:a.test', 8))
  vi.setSystemTime(endOf(material.cert) - 7.5 * 86_400_000)
  const config = readConfig(pemFiles(temporaryDirectory(), material))
  const stream = new PassThrough({ encoding: 'utf8' })
  const log = createLog({ logLevel: 'info', logFormat: 'json' }, stream)
  const watch = watchTls({ config, material, onChange: () => undefined, log, metrics: createMetrics() })
  onTestFinished(() => watch.stop())
  const warningsOf = (days: number) => {
    vi.advanceTimersByTime(days * 86_400_000)
    return String(stream.read() ?? '').split('ends at').length - 1
  }
  expect([0, 1, 1].map(warningsOf)).toEqual([0, 1, 1])
})

test('callers that are turned away are logged once a minute, with their number', async () => {
  freezeTime()
  const { port, logged } = await open(createAuthority())
  const stranger = materialBy(createAuthority())
  const knock = async () => {
    const peer = tls.connect({ ...stranger, rejectUnauthorized: false, host: '127.0.0.1', port })
    await new Promise((resolve) => peer.on('error', () => undefined).once('close', resolve))
  }
  const line = (count: number) =>
    expect.stringMatching(
      `^TLS has turned away .*: SELF_SIGNED_CERT_IN_CHAIN \\(${count} since the last line on this\\)$`,
    )
  await knock()
  await expect.poll(() => logged('turned away')).toEqual([line(1)])
  await knock()
  vi.advanceTimersByTime(60_000)
  await knock()
  await expect.poll(() => logged('turned away').slice(1)).toEqual([line(2)])
})
