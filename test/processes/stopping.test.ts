// A process that is told to stop while callers or a database hold on to it.
import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, constants, existsSync, openSync, readSync, rmSync, writeFileSync } from 'node:fs'
import net from 'node:net'
import path from 'node:path'
import * as grpc from '@grpc/grpc-js'
import { expect, onTestFinished, test, vi } from 'vitest'
import { start } from '../../bin/compose/start.js'
import { readConfig } from '../../bin/config.js'
import { GroupCommit } from '../../services/storage/sqlite/group-commit.js'
import { collectLog } from '../harness/collect-log.js'
import { freePort } from '../harness/free-port.js'
import { halfARequest } from '../harness/half-a-request.js'
import { send } from '../harness/http.js'
import { createProcess } from '../harness/process.js'
import { BUILD, PROGRAM, spawnServe } from '../harness/spawn.js'
import { Relay } from '../postgres/relay.js'
import { createDatabase } from '../postgres/shared-cluster.js'
import { temporaryDirectory } from '../store/temporary-directory.js'

const MOST_SECONDS = 5

test(`a process ends within SHUTDOWN_TIMEOUT_SECONDS, even with an unfinished form and an open stream of calls`, async () => {
  const running = await start(
    'all',
    readConfig({
      DATA_DIR: temporaryDirectory(),
      PORT: '0',
      ADMIN_PORT: '0',
      RPC_LISTEN: 'http://127.0.0.1:0',
      LOG_LEVEL: 'silent',
      SHUTDOWN_TIMEOUT_SECONDS: String(MOST_SECONDS),
    }),
  )
  const form = net.connect(Number(new URL(running.url).port), '127.0.0.1').on('error', () => undefined)
  onTestFinished(() => void form.destroy())
  const bytes = (message: Buffer) => message
  const client = new grpc.Client(new URL(running.rpcAddress ?? '').host, grpc.credentials.createInsecure())
  onTestFinished(() => client.close())
  const stream = client.makeBidiStreamRequest('/surveyauth.internal.v1.MultiplexService/Multiplex', bytes, bytes)
  stream.resume().on('error', () => undefined)
  await once(stream, 'metadata')
  form.write('POST /connect/sign-in HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nusername=')
  await new Promise((resolve) => setTimeout(resolve, 200))
  const startedAt = performance.now()
  await running.close()
  expect(performance.now() - startedAt).toBeLessThan(MOST_SECONDS * 1000)
}, 20_000)

test('a request in flight is given half of a short SHUTDOWN_TIMEOUT_SECONDS', async () => {
  const own = { DATA_DIR: temporaryDirectory(), PORT: '0', ADMIN_PORT: '0', RPC_LISTEN: 'off', LOG_LEVEL: 'silent' }
  const running = await start('all', readConfig({ ...own, SHUTDOWN_TIMEOUT_SECONDS: '2' }))
  const slow = await halfARequest(running.url)
  const closed = running.close()
  await new Promise((resolve) => setTimeout(resolve, 100))
  slow.finish()
  expect(await slow.answer).toMatch(/^HTTP\/1\.1 40[0-9] /)
  await closed
})

test('for DRAIN_SECONDS readiness turns balancers away while new connections are still answered', async () => {
  const adminPort = await freePort()
  const own = { DATA_DIR: temporaryDirectory(), PORT: '0', RPC_LISTEN: 'http://127.0.0.1:0', LOG_LEVEL: 'silent' }
  const running = await start('all', readConfig({ ...own, ADMIN_PORT: String(adminPort), DRAIN_SECONDS: '2' }))
  const readyz = () =>
    fetch(`http://127.0.0.1:${adminPort}/readyz`).then(async (answer) => [answer.status, await answer.text()])
  expect(await readyz()).toEqual([200, 'ready\n'])
  const closed = running.close()
  expect(await readyz()).toEqual([503, 'shutting down\n'])
  expect(await healthOf(running.rpcAddress ?? '')).toEqual(NOT_SERVING)
  const ask = () => send(running.url, '/api/surveys', { headers: { connection: 'close' } })
  expect(await ask()).toMatchObject({ status: 400 })
  await closed
  await expect(ask()).rejects.toThrow('ECONNREFUSED')
})

/** `HealthCheckResponse` of grpc.health.v1 whose status is NOT_SERVING. */
const NOT_SERVING = Buffer.from([8, 2])

async function healthOf(rpcAddress: string): Promise<Buffer | undefined> {
  const client = new grpc.Client(new URL(rpcAddress).host, grpc.credentials.createInsecure())
  const asIs = (message: Buffer) => message
  try {
    return await new Promise((resolve, reject) =>
      client.makeUnaryRequest('/grpc.health.v1.Health/Check', asIs, asIs, Buffer.alloc(0), (error, answer) =>
        error ? reject(error) : resolve(answer),
      ),
    )
  } finally {
    client.close()
  }
}

test('a step of stopping that fails is logged, and the steps after it are taken', async () => {
  const { logStream, lines } = collectLog()
  const own = {
    DATA_DIR: temporaryDirectory(),
    PORT: '0',
    ADMIN_PORT: '0',
    RPC_LISTEN: 'off',
    SHUTDOWN_TIMEOUT_SECONDS: '5',
  }
  const running = await start('all', readConfig(own), { logStream })
  const close = vi.spyOn(GroupCommit.prototype, 'close').mockRejectedValueOnce(new Error('of the surveys'))
  onTestFinished(() => close.mockRestore())
  await expect(running.close()).rejects.toThrow('not everything was stopped in order')
  expect(close).toHaveBeenCalledTimes(2) // the tokens' too
  expect(lines.filter((line) => line.includes('of the surveys'))).toHaveLength(1)
  expect(lines.filter((line) => line.includes('a step of stopping failed'))).toHaveLength(1)
})

test('a disk that hangs does not keep a process from ending, and what was acknowledged is kept', async () => {
  const folder = temporaryDirectory()
  const [told, hangs] = [path.join(folder, 'told'), path.join(folder, 'hangs')]
  const hang = `import fs from 'node:fs'
    import { syncBuiltinESMExports } from 'node:module'
    const { fdatasync } = fs
    fs.fdatasync = (...args) => {
      if (!fs.existsSync('${told}')) return fdatasync(...args)
      fs.writeFileSync('${hangs}', '')
      setInterval(() => {}, 1000)
    }
    syncBuiltinESMExports()`
  const service = await createProcess({
    NODE_OPTIONS: `--import=data:text/javascript,${encodeURIComponent(hang)}`,
    SHUTDOWN_TIMEOUT_SECONDS: '3',
  })
  await service.start()
  const createUser = (name: string) =>
    service.cli(['user', 'create', '--username', name, '--password-stdin'], { input: 'correct horse' })
  expect((await createUser('ann')).exitCode).toBe(0)
  writeFileSync(told, '')
  for (let n = 0; !existsSync(hangs); n += 1) expect((await createUser(`bob${n}`)).exitCode).toBe(69)
  expect(await service.stop()).toBe(-1)
  expect(service.output).toContain('not stopped in time')
  rmSync(told)
  await service.start()
  expect((await service.cli(['user', 'list'])).stdout).toContain('ann')
})

test('a process ends even when PostgreSQL does not answer', async () => {
  execFileSync(process.execPath, [BUILD], { stdio: 'inherit' })
  const database = new URL(await createDatabase())
  const relay = await Relay.open(Number(database.port))
  onTestFinished(() => relay.close())
  database.port = String(relay.port)
  const { PATH = '' } = process.env
  const own = { DATA_DIR: temporaryDirectory(), ADMIN_PORT: '0', TOKEN_DATABASE_URL: database.href }
  const { child, listening } = spawnServe('token', { PATH, LOG_LEVEL: 'silent', ...own })
  onTestFinished(() => void child.kill('SIGKILL'))
  await listening
  relay.silence()
  child.kill('SIGTERM')
  // The bound only tells an end from no end; a busy machine may take its time.
  expect(await once(child, 'exit', { signal: AbortSignal.timeout(30_000) })).toEqual([0, null])
}, 120_000)

const REQUESTS = 1_000 // their lines are three times what a pipe holds

/** A service that has answered requests and whose stderr is a pipe that has not been read; `read` takes what it is told to. */
async function serveUnread(isSocket = false) {
  execFileSync(process.execPath, [BUILD], { stdio: 'inherit' })
  const folder = temporaryDirectory()
  const pipe = path.join(folder, 'stderr')
  execFileSync('mkfifo', [pipe])
  const reader = openSync(pipe, constants.O_RDONLY | constants.O_NONBLOCK)
  const writer = openSync(pipe, 'w')
  onTestFinished(() => closeSync(reader))
  const PORT = String(await freePort())
  const own = { DATA_DIR: folder, TMPDIR: folder, PORT, ADMIN_PORT: '0', RATE_LIMIT: 'off' }
  const env = { PATH: process.env.PATH, SHUTDOWN_TIMEOUT_SECONDS: '60', ...own }
  const stderr = isSocket ? 'pipe' : writer // spawn makes a socket of 'pipe', as journald gives one
  const child = spawn(process.execPath, [PROGRAM, 'serve'], { env, stdio: ['ignore', 'ignore', stderr] })
  closeSync(writer)
  onTestFinished(() => void child.kill('SIGKILL'))
  const ask = () => send(`http://127.0.0.1:${PORT}`, '/api/none')
  const status = () =>
    ask()
      .then((answer) => answer.status)
      .catch(() => 0)
  await expect.poll(status, { timeout: 30_000 }).toBe(404)
  for (let asked = 0; asked < REQUESTS; asked += 1) expect((await ask()).status).toBe(404)
  const read = (bytes: number) => {
    const chunk = Buffer.alloc(bytes)
    try {
      return chunk.toString('utf8', 0, readSync(reader, chunk))
    } catch {
      return '' // nothing there
    }
  }
  return { child, read }
}

test.each([{ isSocket: false }, { isSocket: true }])(
  'serve answers while nobody reads its stderr, socket: $isSocket, and ends in order though nobody ever does',
  async ({ isSocket }) => {
    const { child } = await serveUnread(isSocket)
    child.kill('SIGTERM')
    expect(await once(child, 'exit', { signal: AbortSignal.timeout(30_000) })).toEqual([0, null]) // half of the time it has
  },
  120_000,
)

test('whoever reads stderr slowly gets the last lines too', async () => {
  const { child, read } = await serveUnread()
  const ended = once(child, 'exit')
  child.kill('SIGTERM')
  let told = ''
  const timer = setInterval(() => {
    told += read(4_096)
  }, 50)
  expect(await ended).toEqual([0, null])
  clearInterval(timer)
  for (let rest = read(65_536); rest !== ''; rest = read(65_536)) told += rest
  expect(told.match(/"msg":"request"/g)?.length).toBeGreaterThanOrEqual(REQUESTS)
  expect(told).toMatch(/"msg":"stopped"\}\n$/)
}, 120_000)
