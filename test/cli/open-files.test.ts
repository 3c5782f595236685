// A process of which clients open more connections than it may open files.
import { spawn } from 'node:child_process'
import { connect, type Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import { connectionLimits, fewOpenFiles } from '../../bin/open-files.js'
import { freePort } from '../harness/free-port.js'
import { createProcess } from '../harness/process.js'
import { PROGRAM, untilListening } from '../harness/spawn.js'

vi.setConfig({ testTimeout: 120_000 })

const MAX_FILES = 300
const CROWD = 600
const PROBES = 10

/** `serve MODE` with few files, on free ports. */
async function serveWithFewFiles(mode: string) {
  const { dataDir } = await createProcess()
  const [httpPort, adminPort, rpcPort] = [await freePort(), await freePort(), await freePort()]
  const env = {
    PATH: process.env.PATH,
    DATA_DIR: dataDir,
    PORT: String(httpPort),
    ADMIN_PORT: String(adminPort),
    RPC_LISTEN: `http://127.0.0.1:${rpcPort}`,
    RATE_LIMIT: 'off',
  }
  const limited = ['-c', `ulimit -n ${MAX_FILES} && exec "$0" "$@"`, process.execPath, PROGRAM, 'serve', mode]
  const child = spawn('sh', limited, { env, stdio: ['ignore', 'ignore', 'pipe'] })
  onTestFinished(() => void child.kill('SIGKILL'))
  await untilListening(child)
  return { http: httpPort, admin: adminPort, rpc: rpcPort }
}

/** Connections that send nothing; fulfils when no more of them are closed. Returns what closes the others. */
async function crowd(port: number): Promise<() => void> {
  const sockets: Socket[] = []
  let closed = 0
  for (let i = 0; i < CROWD; i += 1) {
    const socket = connect(port, '127.0.0.1').on('error', () => undefined)
    sockets.push(socket.on('close', () => (closed += 1)).resume())
  }
  const leave = () => {
    for (const socket of sockets) socket.destroy()
  }
  onTestFinished(leave)
  for (let before = -1; closed === 0 || closed > before; await sleep(500)) before = closed
  return leave
}

async function statusOf(port: number, path: string): Promise<number | string> {
  const url = `http://127.0.0.1:${port}${path}`
  const init = { headers: { connection: 'close' }, signal: AbortSignal.timeout(1_000) }
  return fetch(url, init).then(
    ({ status }) => status,
    (error: Error) => error.name,
  )
}

describe('/healthz and /readyz are answered within a second while more connections are opened than files may be', () => {
  test.each([
    ['all', ['http']],
    ['all', ['rpc']],
    ['all', ['http', 'rpc', 'admin']],
    ['token', ['rpc']],
  ] as const)('serve %s, at %j', async (mode, flooded) => {
    const ports = await serveWithFewFiles(mode)
    const left = await Promise.all(flooded.map((port) => crowd(ports[port])))
    const answers: unknown[] = []
    for (let i = 0; i < PROBES; i += 1) {
      answers.push(await statusOf(ports.admin, '/healthz'), await statusOf(ports.admin, '/readyz'))
    }
    expect(answers).toEqual(Array.from({ length: 2 * PROBES }, () => 200))
    for (const leave of left) leave()
    await sleep(500)
    if (mode === 'all') expect(await statusOf(ports.http, '/')).toBe(200)
    expect(await statusOf(ports.rpc, '/')).toBe(404)
  })
})

test.each([
  [Number.POSITIVE_INFINITY, { http: 10_000, rpc: 1_000 }],
  [11_150, { http: 10_000, rpc: 1_000 }],
  [11_149, { http: 9_999, rpc: 1_000 }],
  [1_024, { http: 656, rpc: 218 }],
  [100, { http: 3, rpc: 1 }],
])('of %s files it leaves some for all that is not a connection of a client', (maxFiles, limits) => {
  const config = { httpMaxConnections: 10_000 }
  expect(connectionLimits(config, maxFiles)).toEqual(limits)
  expect(fewOpenFiles(config, maxFiles) === undefined).toBe(limits.http === 10_000)
})
