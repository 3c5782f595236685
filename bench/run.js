// `npm run bench`: starts survey-auth and what it is compared with, measures them side by side, round by round, and says
// what came out. Everything is bounded in count and time, listens on loopback, and is gone afterwards.
import { writeFileSync } from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { buildIfNeeded } from '../bin/build-if-needed.js'
import { contestants, lines, memoryMiB } from './contestants.js'
import { installIfNeeded } from './install.js'
import { machine, machineTicks } from './machine.js'
import { options } from './options.js'
import { ask, cleanUp, cores, startNode } from './processes.js'
import { printReport, writeDocs } from './report.js'
import { median } from './stats.js'

const HEADROOM = 1.6 // requests prepared for each that is expected, where each can be sent once only
const FIRST_GUESS = { 'all-in-one': 12_000, separate: 9_000, 'oidc-provider': 1_500, 'node-oauth2-server': 3_000 }
const WARMUP_ANSWERS = 3_000
const JOB_SLACK_MS = 30_000
const SHARES = [0.5, 0.8]

process.on('exit', cleanUp)
for (const [signal, number] of Object.entries({ SIGINT: 2, SIGTERM: 15, SIGHUP: 1 })) {
  process.once(signal, () => process.exit(128 + number))
}

process.exitCode = await main(options(process.argv.slice(2)))
process.exit()

async function main(chosen) {
  const startedAt = Date.now()
  const loadBefore = os.loadavg()[0]
  const ticksBefore = machineTicks()
  installIfNeeded()
  buildIfNeeded()
  if (chosen.baseline)
    (await import(pathToFileURL(path.join(chosen.baseline, 'bin', 'build-if-needed.js')))).buildIfNeeded()
  const generator = startNode([fileURLToPath(new URL('load-process.js', import.meta.url))], { role: 'load', ipc: true })
  await ask(generator.child, undefined, 10_000)
  const running = new Map()
  for (const name of chosen.only) {
    say(`starting ${name}`)
    running.set(name, await contestants[name].start(chosen))
  }
  const cells = chosen.lines.flatMap((line) =>
    chosen.only.filter((name) => running.get(name).lines.includes(line)).map((name) => cell(line, name)),
  )
  const work = { chosen, running, generator }
  for (const line of chosen.lines) {
    await measureCapacity(
      work,
      cells.filter((one) => one.line === line),
    )
  }
  if (chosen.open) {
    for (const line of chosen.lines) {
      await measureLatency(
        work,
        cells.filter((one) => one.line === line && one.name !== 'ceiling'),
      )
    }
  }
  const ticks = machineTicks()
  const stolen = (ticks.stolen - ticksBefore.stolen) / (ticks.all - ticksBefore.all)
  const memory = Object.fromEntries([...running].map(([name, contestant]) => [name, memoryMiB(contestant)]))
  const results = {
    command: `npm run bench${chosen.command === '' ? '' : ` -- ${chosen.command}`}`,
    date: new Date().toISOString().slice(0, 10),
    seconds: Math.round((Date.now() - startedAt) / 1000),
    machine: await machine(),
    load: { before: loadBefore, after: os.loadavg()[0], stolen },
    isPinned: cores !== undefined,
    settings: chosen,
    cells,
    memory,
  }
  for (const contestant of running.values()) await contestant.close()
  printReport(results)
  if (chosen.out !== undefined) writeFileSync(chosen.out, `${JSON.stringify(results, null, 2)}\n`)
  const failed = cells.filter(({ failures }) => failures > 0)
  if (failed.length > 0) return 1
  if (chosen.docs) writeDocs(results)
  return 0
}

/** One line of one contestant: rounds of the closed loop, then the open loop at shares of the median. */
function cell(line, name) {
  return { line, name, rates: [], cpuMicros: [], p50: [], p99: [], busy: 0, failures: 0, examples: [], open: [] }
}

/** Warm-up for all, then rounds; every other round goes backwards, so that nobody is always the first. */
async function measureCapacity(work, cells) {
  const { chosen } = work
  for (const one of cells) await warmUp(work, one)
  for (let round = 0; round < chosen.rounds; round++) {
    const order = round % 2 === 0 ? cells : [...cells].reverse()
    for (const one of order) {
      await closed(work, one, chosen.durationMs, ({ rate, cpuMicros, latency, busy }) => {
        one.rates.push(rate)
        one.cpuMicros.push(cpuMicros)
        one.p50.push(latency.p50)
        one.p99.push(latency.p99)
        one.busy = Math.max(one.busy, busy)
      })
    }
    say(
      `${cells[0].line}, round ${round + 1}: ${cells.map(({ name, rates }) => `${name} ${rates.at(-1).toFixed(0)}/s`).join(', ')}`,
    )
  }
}

/** Until the compiler of the engine has seen enough, which takes a slow server longer. */
async function warmUp(work, one) {
  const { warmupMs } = work.chosen
  const timing = { warmupMs, warmupAnswers: WARMUP_ANSWERS, durationMs: warmupMs / 2 }
  const expected = Math.max(WARMUP_ANSWERS, expectedRate(one) * (warmupMs / 1000)) * 1.5
  one.lastRate = (await job(work, one, 'closed', expected, timing)).rate
}

async function closed(work, one, durationMs, keep) {
  const settleMs = Math.min(300, durationMs / 4)
  const expected = expectedRate(one) * ((durationMs + settleMs) / 1000)
  const result = await job(work, one, 'closed', expected, { warmupMs: settleMs, durationMs })
  one.lastRate = result.rate
  keep(result)
}

async function measureLatency(work, cells) {
  const { chosen } = work
  for (const share of SHARES) {
    for (const one of cells) {
      const rate = median(one.rates) * share
      if (!(rate > 0)) continue
      const { running } = work
      const warmupMs = Math.min(300, chosen.openMs / 4)
      await running.get(one.name).loopDelayMs()
      const result = await job(work, one, 'open', (rate * (warmupMs + chosen.openMs)) / 1000 / HEADROOM + 100, {
        rate,
        warmupMs,
        durationMs: chosen.openMs,
      })
      const loopDelayMs = await running.get(one.name).loopDelayMs()
      one.open.push({
        share,
        rate,
        ...result.latency,
        unsent: result.unsent,
        worstLagMs: result.worstLagMs,
        loopDelayMs,
      })
    }
    const shown = cells.map(({ name, open }) => `${name} ${open.at(-1)?.p99.toFixed(1)} ms`)
    say(`${cells[0]?.line} at ${share * 100} %, p99: ${shown.join(', ')}`)
  }
}

async function job({ running, generator, chosen }, one, loop, expected, timing) {
  const contestant = running.get(one.name)
  const { once } = lines[one.line]
  const isOnce = once && one.name !== 'ceiling'
  const prepared = await contestant.requests(one.line, Math.ceil(expected * HEADROOM))
  contestant.emptyLogs()
  const { result } = await ask(
    generator.child,
    {
      loop,
      job: {
        port: contestant.port,
        connections: chosen.connections,
        once: isOnce,
        pids: contestant.processes.map(({ pid }) => pid),
        ...prepared,
        ...timing,
      },
    },
    timing.warmupMs + timing.durationMs + JOB_SLACK_MS,
  )
  one.failures += result.failures
  one.examples.push(...result.examples)
  if (result.failures > 0)
    say(`${one.name}, ${one.line}: ${result.failures} failures, such as ${result.examples[0]?.why}`)
  return result
}

function expectedRate({ name, lastRate }) {
  return Math.max(lastRate ?? FIRST_GUESS[name] ?? 0, 200)
}

function say(text) {
  process.stderr.write(`bench: ${text}\n`)
}
