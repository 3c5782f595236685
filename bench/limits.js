// `npm run bench:limits`: what a request costs as connections and surveys grow in number, and what happens under overload.
// All in one process on SQLite, on a core of its own.
import { buildIfNeeded } from '../bin/build-if-needed.js'
import { scriptOptions } from '../test/harness/script-options.js'
import { contestants, lines, memoryMiB } from './contestants.js'
import { PASSWORD } from './person.js'
import { ask, startAlone, startGenerator } from './processes.js'
import { tenths } from './stats.js'

const CONNECTIONS = [1, 8, 64, 256, 1_000]
const SURVEYS_PER_OWNER = [1, 10, 100, 1_000]
const AMOUNTS = { users: 5_000, grants: 2_000, owners: 10 }
const WARMUP_MS = 2_000
const WARMUP_ANSWERS = 2_500
const JOB_SLACK_MS = 60_000
const OVERLOAD = { line: 'refresh', factor: 5, connections: 4_000 }
const SIGN_INS = { people: 1_000, line: 'refresh', rate: 200, connections: 16, durationMs: 10_000, runs: 3 }
/** Share of the capacity at which the latency without load is measured. */
const UNLOADED_SHARE = 0.1
const HEALTH_EVERY_MS = 50
const PROBE_MS = 500
const RECOVERY_MS = 30_000

const parts = { connections: byConnections, surveys: bySurveys, overload: overloaded, 'sign-ins': besideSignIns }
const options = scriptOptions('npm run bench:limits', {
  seconds: [3, 'of each measurement'],
  overload: [60, 'seconds of overload'],
  only: ['', 'a part', Object.keys(parts)],
})
const durationMs = options.seconds * 1_000
const overloadMs = options.overload * 1_000
const chosen = options.only === '' ? Object.keys(parts) : [options.only]
startAlone()
buildIfNeeded()
const generator = await startGenerator()
for (const part of chosen) await parts[part]()
process.exit()

async function byConnections() {
  const service = await contestants['all-in-one'].start(AMOUNTS)
  const rows = {}
  for (const line of ['user', 'refresh']) {
    for (const connections of CONNECTIONS) {
      const { rate, cpuMicros, latency } = await closed(service, line, connections)
      rows[`${lines[line].title}, ${connections} connections`] = {
        'a second': Math.round(rate),
        'CPU, µs': tenths(cpuMicros[0]),
        'p50, ms': tenths(latency.p50),
        'p99, ms': tenths(latency.p99),
        'memory, MiB': Math.round(memoryMiB(service)),
      }
    }
  }
  await service.close()
  console.table(rows)
}

async function bySurveys() {
  const rows = {}
  for (const surveysPerOwner of SURVEYS_PER_OWNER) {
    const service = await contestants['all-in-one'].start({ ...AMOUNTS, surveysPerOwner })
    for (const line of ['detail', 'list']) {
      const { rate, cpuMicros } = await closed(service, line, 64)
      rows[`${lines[line].title}, ${surveysPerOwner} of each user`] = {
        'a second': Math.round(rate),
        'CPU, µs': tenths(cpuMicros[0]),
        'memory, MiB': Math.round(memoryMiB(service)),
      }
    }
    await service.close()
  }
  console.table(rows)
}

async function overloaded() {
  const { line, factor, connections } = OVERLOAD
  const service = await contestants['all-in-one'].start(AMOUNTS)
  const { rate: capacity } = await closed(service, line, 64)
  const unloaded = await run(service, line, 'open', { connections: 64, rate: capacity * UNLOADED_SHARE, durationMs })
  if (unloaded.failures > 0) throw new Error(`failures without load: ${JSON.stringify(unloaded.examples)}`)
  const memoryBefore = memoryMiB(service)
  const watched = watch(service)
  const result = await run(service, line, 'overload', { connections, rate: capacity * factor, durationMs: overloadMs })
  const { worstHealthMs, worstMemoryMiB } = await watched.end()
  const endedAt = performance.now()
  const isNormal = async () => {
    const timing = { connections: 64, rate: capacity * UNLOADED_SHARE, durationMs: PROBE_MS }
    const { failures, latency } = await run(service, line, 'open', timing)
    return failures === 0 && latency.p99 <= 2 * unloaded.latency.p99 + 5
  }
  while (!(await isNormal()) && performance.now() - endedAt < RECOVERY_MS);
  const recoveredMs = performance.now() - endedAt
  await service.close()
  const seconds = overloadMs / 1_000
  console.table({
    [`refresh, ${factor} times what it can do, ${connections} connections, ${seconds} s`]: {
      'asked for, a second': Math.round(capacity * factor),
      'sent, a second': Math.round((result.answered + result.refused) / seconds),
      'done, a second': Math.round(result.answered / seconds),
      'refused, a second': Math.round(result.refused / seconds),
      'not sent, every connection waiting, a second': Math.round(result.unsent / seconds),
      'p99 unloaded, ms': tenths(unloaded.latency.p99),
      'p99 of what was done, ms': tenths(result.latency.p99),
      '/healthz at worst, ms': Math.round(worstHealthMs),
      'memory before and at most, MiB': `${Math.round(memoryBefore)}, ${Math.round(worstMemoryMiB)}`,
      [`normal again within, s (${PROBE_MS / 1_000} at least)`]:
        recoveredMs < RECOVERY_MS ? tenths(recoveredMs / 1_000) : `not in ${RECOVERY_MS / 1_000}`,
    },
  })
  if (result.failures > 0) throw new Error(`failures under overload: ${JSON.stringify(result.examples)}`)
}

/** How a crowd that signs in delays requests for tokens. */
async function besideSignIns() {
  const { people, line, rate, connections, durationMs: signInMs, runs } = SIGN_INS
  const service = await contestants['all-in-one'].start(AMOUNTS)
  const crowd = await startGenerator()
  const usernames = Array.from({ length: people }, (_, index) => `user${index}`)
  const timing = { connections, rate, durationMs: signInMs }
  await closed(service, line, 64) // warm
  const rows = {}
  for (let count = 1; count <= runs; count++) {
    const alone = await run(service, line, 'open', timing)
    const [beside, { result: crowded }] = await Promise.all([
      run(service, line, 'open', timing),
      ask(
        crowd.child,
        { loop: 'sign-ins', job: { port: service.port, usernames, password: PASSWORD, durationMs: signInMs } },
        signInMs + JOB_SLACK_MS,
      ),
    ])
    for (const { failures, examples } of [alone, beside, crowded]) {
      if (failures > 0) throw new Error(`failures beside sign-ins: ${JSON.stringify(examples)}`)
    }
    rows[`${rate} of ${line} a second, ${people} sign in; ${count}`] = {
      'p50 alone, ms': tenths(alone.latency.p50),
      'p50 beside, ms': tenths(beside.latency.p50),
      'p99 alone, ms': tenths(alone.latency.p99),
      'p99 beside, ms': tenths(beside.latency.p99),
      'longest beside, ms': tenths(beside.latency.max),
      'signed in': crowded.signedIn,
      'told to come again': crowded.refused,
    }
  }
  await service.close()
  console.table(rows)
}

/** Polls /healthz and the memory until `end`. */
function watch(service) {
  let isOver = false
  let worstHealthMs = 0
  let worstMemoryMiB = 0
  const watching = (async () => {
    while (!isOver) {
      const askedAt = performance.now()
      const { status } = await fetch(`${service.adminUrls[0]}/healthz`)
      if (status !== 200) throw new Error(`/healthz answers ${status}`)
      worstHealthMs = Math.max(worstHealthMs, performance.now() - askedAt)
      worstMemoryMiB = Math.max(worstMemoryMiB, memoryMiB(service))
      await new Promise((resolve) => setTimeout(resolve, HEALTH_EVERY_MS))
    }
  })()
  return {
    async end() {
      isOver = true
      await watching
      return { worstHealthMs, worstMemoryMiB }
    },
  }
}

async function closed(service, line, connections) {
  const timing = { warmupMs: WARMUP_MS, warmupAnswers: WARMUP_ANSWERS, durationMs }
  const result = await run(service, line, 'closed', { connections, ...timing })
  if (result.failures > 0) throw new Error(`${line}: ${JSON.stringify(result.examples)}`)
  return result
}

async function run(service, line, loop, timing) {
  const job = {
    port: service.port,
    pids: service.processes.map(({ pid }) => pid),
    ...(await service.requests(line, 1)),
  }
  service.emptyLogs()
  const { result } = await ask(
    generator.child,
    { loop, job: { ...job, ...timing } },
    (timing.warmupMs ?? 0) * 4 + timing.durationMs + JOB_SLACK_MS,
  )
  return result
}
