// Workers as their parent sees them, in this process, where times can be shortened.
import { execFileSync } from 'node:child_process'
import cluster from 'node:cluster'
import { writeFileSync } from 'node:fs'
import path from 'node:path'
import { expect, onTestFinished, test, vi } from 'vitest'
import { workerEnvironment } from '../../bin/compose/worker-environment.js'
import { Worker } from '../../bin/compose/worker-process.js'
import { startWorkers } from '../../bin/compose/workers.js'
import { readConfig } from '../../bin/config.js'
import type { Log } from '../../bin/telemetry/log.js'
import { BUILD } from '../harness/spawn.js'
import { temporaryDirectory } from '../store/temporary-directory.js'

const WITHIN_MS = 15_000
const LOOK_EVERY_MS = 300

function collectingLog(): { readonly log: Log; readonly lines: string[] } {
  const lines: string[] = []
  const collect = (text: string) => void lines.push(text)
  const ignore = () => undefined
  const log = {
    note: collect,
    warning: collect,
    failure: collect,
    request: ignore,
    call: ignore,
    removed: ignore,
    passOn: collect,
    end: async () => undefined,
  }
  return { log, lines }
}

test('a worker that does not answer is killed and replaced', async () => {
  execFileSync(process.execPath, [BUILD], { stdio: 'inherit' })
  for (const [name, value] of Object.entries({ PORT: '0', LOG_LEVEL: 'silent' })) vi.stubEnv(name, value)
  onTestFinished(() => void vi.unstubAllEnvs())
  const { log, lines } = collectingLog()
  const services = { kind: 'unix', path: '/nowhere/services.sock' } as const
  const workers = await startWorkers({ count: 1, services, log, lookEveryMs: LOOK_EVERY_MS })
  onTestFinished(() => workers.drain(0))
  const cannotServe = ['token', 'survey'].map(
    (service) => `workers: ${service} service at unix:/nowhere/services.sock: unavailable`,
  )
  expect(workers.notReady()).toEqual(['workers: none of 1 serves', ...cannotServe])

  const pid = Number(/process (\d+)/.exec(lines[0] ?? '')?.[1])
  process.kill(pid, 'SIGSTOP')
  const stoppedAtMs = performance.now()
  await expect
    .poll(() => lines, { timeout: WITHIN_MS })
    .toContain(`worker 1 (process ${pid}) ended: SIGKILL; another takes its place`)
  expect(performance.now() - stoppedAtMs).toBeGreaterThan(9 * LOOK_EVERY_MS)
  expect(lines).toContain(`worker 1 (process ${pid}) does not answer and is killed`)
  await expect.poll(() => lines.filter((line) => line.endsWith(' serves')), { timeout: WITHIN_MS }).toHaveLength(2)
  expect(lines.at(-1)).toMatch(/^the port has changed: http:\S+ is now http:\S+, because PORT is 0$/)
})

test('the counts of a worker are those it gives when asked, not an answer to an earlier look', async () => {
  const worker = await startSlowCounter()
  worker.look()
  await worker.count()
  expect(worker.counted).toEqual([{ name: 'question 2' }])
})

/** A worker that takes 200 ms for its first count, and twice as long for the second, asked at the same time. */
async function startSlowCounter(): Promise<Worker> {
  const file = path.join(temporaryDirectory(), 'counter.js')
  writeFileSync(
    file,
    `process.on('message', ({ type, question }) => {
      const snapshot = [{ name: 'question ' + question }]
      if (type === 'count') setTimeout(() => process.send({ type: 'counted', question, snapshot, notReady: [] }), 200 * question)
    })
    process.send({ type: 'serving', url: '' })`,
  )
  cluster.setupPrimary({ exec: file, args: [] })
  const ignore = () => undefined
  const worker = await new Promise<Worker>((resolve) => {
    const started = new Worker(
      {},
      { onLine: ignore, onServing: () => resolve(started), onFailed: ignore, onLeaving: ignore },
    )
  })
  onTestFinished(async () => {
    worker.kill()
    await worker.ended
  })
  return worker
}

test('a worker neither receives nor checks database settings', () => {
  const parent = {
    TOKEN_DATABASE_URL: 'postgres://user:secret@db/one',
    SURVEY_DATABASE_URL_FILE: '/gone',
    PGPASSWORD: 'secret',
    PORT: '8443',
  }
  const env = { ...parent, ...workerEnvironment(parent, undefined) }
  expect(readConfig(env)).toMatchObject({ port: 8443, adminPort: 0 })
  expect(JSON.stringify(env)).not.toContain('secret')
})
