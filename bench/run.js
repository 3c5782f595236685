// `npm run bench`: starts survey-auth and its peers, measures them side by side, round by round, and reports the results.
// Everything is bounded in count and time, listens on loopback, and is removed afterwards.
import { writeFileSync } from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { pathToFileURL } from 'node:url'
import { buildIfNeeded } from '../bin/build-if-needed.js'
import { contestants, lines, memoryMiB } from './contestants.js'
import { DISTURBED } from './figures.js'
import { installIfNeeded } from './install.js'
import { machine, machineTicks } from './machine.js'
import { options } from './options.js'
import { ask, cores, startAlone, startGenerator } from './processes.js'
import { printReport, writeDocs } from './report.js'

const HEADROOM = 1.4 // requests prepared for each that is expected, where each can be sent once only
const FIRST_GUESS = 3_000 // a second
const WARMUP_ANSWERS = 2_500
const JOB_SLACK_MS = 30_000
const SHARES = [0.5, 0.8]

process.exitCode = await main(options(process.argv.slice(2))).catch((error) => {
  process.stderr.write(`bench: ${error.stack}\n`)
  return 1
})
process.exit()

async function main(chosen) {
  startAlone()
  const startedAt = Date.now()
  const loadBefore = os.loadavg()[0]
  const ticksBefore = machineTicks()
  installIfNeeded()
  buildIfNeeded()
  if (chosen.baseline)
    (await import(pathToFileURL(path.join(chosen.baseline, 'bin', 'build-if-needed.js')))).buildIfNeeded()
  const generator = await startGenerator()
  const running = new Map()
  say(`starting ${chosen.only.join(', ')}`)
  const started = await Promise.all(chosen.only.map((name) => contestants[name].start(chosen)))
  for (const [index, name] of chosen.only.entries()) running.set(name, started[index])
  const cells = chosen.lines.flatMap((line) =>
    chosen.only.filter((name) => running.get(name).lines.includes(line)).map((name) => cell(line, name)),
  )
  if (cells.length === 0)
    throw new Error(`no contestant of ${chosen.only.join(', ')} serves ${chosen.lines.join(', ')}`)
  const work = { chosen, running, generator, cells, endAt: startedAt + chosen.budgetMs }
  await measure(work)
  const ticks = machineTicks()
  const stolen = (ticks.stolen - ticksBefore.stolen) / (ticks.all - ticksBefore.all)
  const memory = Object.fromEntries([...running].map(([name, contestant]) => [name, memoryMiB(contestant)]))
  const results = {
    command: `npm run bench${chosen.command === '' ? '' : ` -- ${chosen.command}`}`,
    date: new Date().toISOString().slice(0, 10),
    seconds: Math.round((Date.now() - startedAt) / 1000),
    machine: await machine(chosen.only),
    load: { before: loadBefore, after: os.loadavg()[0], stolen },
    isPinned: cores !== undefined,
    settings: chosen,
    cells,
    memory,
  }
  for (const contestant of running.values()) await contestant.close()
  const { isDisturbed } = printReport(results)
  if (chosen.out !== undefined) writeFileSync(chosen.out, `${JSON.stringify(results, null, 2)}\n`)
  const failed = cells.filter(({ failures }) => failures > 0)
  if (failed.length > 0) return 1
  const isWhole = cores !== undefined && cells[0].rates.length === chosen.rounds && !isDisturbed
  if (chosen.docs === 'always' || (chosen.docs === 'whole' && isWhole)) writeDocs(results)
  return 0
}

/** One line of one contestant, with each round's results. */
function cell(line, name) {
  return {
    line,
    name,
    rates: [],
    cpuMicros: [],
    p50: [],
    p99: [],
    busy: 0,
    waited: [],
    failures: 0,
    examples: [],
    open: SHARES.map((share) => ({ share, rounds: [] })),
  }
}

/**
 * Warm-up for all, then rounds over all lines; every other round goes backwards, so that none is always the first.
 * A round's open loops follow its closed loops, at shares of the capacity these found: half of the capacity of minutes ago
 * may be all of it now. When time runs out, rounds are left out, the same number for every contestant.
 */
async function measure(work) {
  const { chosen, cells, endAt } = work
  say('warming up')
  for (const one of cells) await warmUp(work, one)
  for (let round = 0; round < chosen.rounds; round++) {
    const startedAt = Date.now()
    for (const line of chosen.lines) {
      const ofLine = cells.filter((one) => one.line === line)
      const inTurn = round % 2 === 0 ? ofLine : ofLine.toReversed()
      for (const one of inTurn) await measureCapacity(work, one)
      const shown = ofLine.map(({ name, rates }) => `${name} ${rates.at(-1).toFixed(0)}/s`)
      say(`round ${round + 1}, ${line}: ${shown.join(', ')}`)
      if (chosen.open) await measureLatencies(work, line, inTurn)
    }
    const tookMs = Date.now() - startedAt
    if (Date.now() + tookMs > endAt && round + 1 < chosen.rounds) {
      say(`out of time after ${round + 1} of ${chosen.rounds} rounds`)
      return
    }
  }
}

/** The closed loop; repeated while other programs have the generator's core, and the least disturbed attempt counts. */
async function measureCapacity(work, one) {
  const { durationMs, repeats } = work.chosen
  const settleMs = Math.min(300, durationMs / 4)
  let best
  for (let attempt = 0; attempt <= repeats; attempt++) {
    const expected = expectedRate(one) * ((durationMs + settleMs) / 1000)
    const result = await job(work, one, 'closed', expected, { warmupMs: settleMs, durationMs })
    one.lastRate = result.rate
    if (best === undefined || result.waited < best.waited) best = result
    if (!(best.waited > DISTURBED) || Date.now() > work.endAt) break
  }
  one.rates.push(best.rate)
  one.cpuMicros.push(best.cpuMicros)
  one.p50.push(best.latency.p50)
  one.p99.push(best.latency.p99)
  one.waited.push(best.waited)
  one.busy = Math.max(one.busy, best.busy)
}

/** Lasts until the engine's compiler has seen enough calls, which takes longer with a slow server. */
async function warmUp(work, one) {
  const { warmupMs } = work.chosen
  const timing = { warmupMs, warmupAnswers: WARMUP_ANSWERS, durationMs: warmupMs / 2 }
  const expected = Math.max(WARMUP_ANSWERS, expectedRate(one) * (warmupMs / 1000))
  one.lastRate = (await job(work, one, 'closed', expected, timing)).rate
}

async function measureLatencies(work, line, inTurn) {
  const measured = inTurn.filter(({ name }) => name !== 'ceiling')
  for (const [index, share] of SHARES.entries()) {
    for (const one of measured) await measureLatency(work, one, one.open[index])
    const shown = measured.map(({ name, open }) => `${name} ${open[index].rounds.at(-1)?.p50.toFixed(2)} ms`)
    say(`${line} at ${share * 100} %, p50: ${shown.join(', ')}`)
  }
}

async function measureLatency(work, one, { share, rounds }) {
  const { openMs } = work.chosen
  const rate = one.rates.at(-1) * share
  if (!(rate > 0)) return
  const warmupMs = openMs / 2
  const expected = (rate * (warmupMs + openMs)) / 1000 / HEADROOM + 100
  const result = await job(work, one, 'open', expected, { rate, warmupMs, durationMs: openMs })
  const { latency, backlog, worstLagMs } = result
  const loopDelayMs = await work.running.get(one.name).loopDelayMs()
  rounds.push({ ...latency, backlog, worstLagMs, loopDelayMs })
}

async function job({ running, generator, chosen }, one, loop, expected, timing) {
  const contestant = running.get(one.name)
  const { once } = lines[one.line]
  const isOnce = once && one.name !== 'ceiling'
  const prepared = await contestant.requests(one.line, Math.ceil(expected * HEADROOM))
  contestant.emptyLogs()
  if (loop === 'open') await contestant.loopDelayMs() // resets it
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

function expectedRate({ lastRate }) {
  return Math.max(lastRate ?? FIRST_GUESS, 200)
}

function say(text) {
  process.stderr.write(`bench: ${text}\n`)
}
