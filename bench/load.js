// The load generator: HTTP/1.1 over raw sockets, one request at a time on each connection, every answer checked.
// Closed loop: a connection sends its next request when the last was answered; measures capacity.
// Open loop: requests are due at a fixed rate whatever the server does, and latency counts from when a request was due,
// so that a server that stalls cannot hide the requests it kept waiting.
import { readdirSync, readFileSync } from 'node:fs'
import { connect } from 'node:net'
import { performance } from 'node:perf_hooks'
import { dueAtMs, dueBy, summary } from './stats.js'

const HOST = '127.0.0.1'
const BUFFER_BYTES = 64 * 1024
const GRACE_MS = 5_000 // what is unanswered then has failed
const NO_ANSWER = 'no answer in time'
const MAX_FAILURES = 100 // more say nothing new
const EXAMPLES = 3
const NOTHING = { rate: 0, seconds: 0, latency: summary([]), busy: 0, waited: Number.NaN }
const WARMUP_FACTOR = 4

/**
 * @typedef {object} Job
 * @property {number} port
 * @property {readonly string[]} requests whole HTTP requests
 * @property {boolean} [once] each request may be sent only once; the run ends when they are used up
 * @property {string} marker text that the body of every good answer contains
 * @property {number} [connections]
 * @property {number} [warmupMs] before anything is counted
 * @property {number} [warmupAnswers] closed loop: also wait for this many answers, up to WARMUP_FACTOR times as long
 * @property {number} durationMs
 * @property {readonly number[]} [pids] processes whose CPU time is measured
 */

/** One keep-alive connection. `onAnswer(problem)` is called for each answer, `onBroken(problem)` when it is lost. */
class Connection {
  dueAt = 0
  sentAt = 0
  isWaiting = false
  #socket
  #pending
  #answers
  #onBroken

  constructor(port, answers, onAnswer, onBroken) {
    this.#answers = answers
    this.#onBroken = onBroken
    const buffer = Buffer.allocUnsafe(BUFFER_BYTES)
    this.#socket = connect({
      port,
      host: HOST,
      noDelay: true,
      onread: {
        buffer,
        callback: (bytes) => {
          this.#read(buffer, bytes, onAnswer)
          return true
        },
      },
    })
    this.#socket.on('error', (error) => this.#break(error.code ?? error.message))
    this.#socket.on('close', () => this.#break('connection closed'))
  }

  whenConnected() {
    return new Promise((resolve) => {
      this.#socket.once('connect', resolve)
      this.#socket.once('close', resolve)
    })
  }

  send(request) {
    this.isWaiting = true
    this.#socket.write(request, 'latin1')
  }

  close() {
    this.#onBroken = () => {}
    this.#socket.destroy()
  }

  #break(why) {
    const onBroken = this.#onBroken
    this.#onBroken = () => {}
    onBroken(this, why)
  }

  #read(buffer, bytes, onAnswer) {
    let text = buffer.latin1Slice(0, bytes)
    if (this.#pending !== undefined) text = this.#pending + text
    const verdict = this.#answers.judge(text)
    this.#pending = verdict === INCOMPLETE ? text : undefined
    if (verdict === INCOMPLETE) return
    this.isWaiting = false
    onAnswer(this, verdict)
  }
}

export const INCOMPLETE = Symbol('incomplete')

/** Tells good answers from bad ones. Text is latin1, so that a character is a byte. */
export class Answers {
  #marker
  #lengthField = ''

  constructor(marker) {
    this.#marker = marker
  }

  /** undefined when the answer is complete and good, INCOMPLETE when more is to come, else what is wrong. */
  judge(text) {
    const headEnd = text.indexOf('\r\n\r\n')
    if (headEnd < 0) return INCOMPLETE
    const length = this.#bodyLength(text, headEnd)
    if (length === undefined) return 'an answer without Content-Length'
    const bodyStart = headEnd + 4
    const missing = bodyStart + length - text.length
    if (missing > 0) return INCOMPLETE
    if (missing < 0) return 'bytes after an answer'
    if (!text.startsWith('HTTP/1.1 200 ')) return `${text.slice(9, 12)} ${text.slice(bodyStart, bodyStart + 300)}`
    if (text.indexOf(this.#marker, bodyStart) < 0) return `200 ${text.slice(bodyStart, bodyStart + 300)}`
    return undefined
  }

  /** The spelling of the field is learnt from the first answer: a plain search is cheaper than a pattern. */
  #bodyLength(text, headEnd) {
    let at = this.#lengthField === '' ? -1 : text.indexOf(this.#lengthField)
    if (at < 0 || at > headEnd) {
      const found = /\r\ncontent-length: ?/i.exec(text.slice(0, headEnd))
      if (!found) return undefined
      this.#lengthField = found[0]
      at = found.index
    }
    let length = 0
    for (let digit = at + this.#lengthField.length; digit < headEnd; digit++) {
      const value = text.charCodeAt(digit) - 48
      if (value < 0 || value > 9) break
      length = length * 10 + value
    }
    return length
  }
}

/** What both loops share: connections, the supply of requests, failures, the end. */
class Run {
  connections = []
  failures = 0
  examples = new Map()
  #answers
  #requests
  #once
  #next = 0
  #end = () => {}
  ended = new Promise((resolve) => {
    this.#end = resolve
  })

  constructor({ marker, requests, once = false }) {
    this.#answers = new Answers(marker)
    this.#requests = requests
    this.#once = once
  }

  async connect({ port, connections = 64 }, onAnswer) {
    const onBroken = (_connection, why) => {
      this.fail(why)
      this.end()
    }
    for (let count = 0; count < connections; count++) {
      this.connections.push(new Connection(port, this.#answers, onAnswer, onBroken))
    }
    await Promise.all(this.connections.map((connection) => connection.whenConnected()))
  }

  /** undefined when they are used up. */
  nextRequest() {
    if (this.#next === this.#requests.length) {
      if (this.#once) return undefined
      this.#next = 0
    }
    return this.#requests[this.#next++]
  }

  fail(why) {
    this.failures++
    if (this.examples.size < EXAMPLES || this.examples.has(why)) {
      this.examples.set(why, (this.examples.get(why) ?? 0) + 1)
    }
    if (this.failures >= MAX_FAILURES) this.end()
  }

  waiting() {
    return this.connections.filter((connection) => connection.isWaiting)
  }

  failWaiting() {
    for (const _ of this.waiting()) this.fail(NO_ANSWER)
  }

  end() {
    this.#end()
  }

  close() {
    for (const connection of this.connections) connection.close()
  }

  /** Failures as part of a result. */
  verdict() {
    return { failures: this.failures, examples: [...this.examples].map(([why, times]) => ({ why, times })) }
  }
}

/**
 * @param {Job} job
 * @returns answers a second, their latency, CPU µs per answer of each process, the share of the time that this process
 *   waited for its core, and how busy it was in the rest (0 to 1)
 */
export async function closedLoop(job) {
  const { warmupMs = 0, warmupAnswers = 0, durationMs, pids = [] } = job
  const run = new Run(job)
  const latencies = []
  let startedAt = 0
  let early = 0
  let before
  let after
  const sendOn = (connection, now) => {
    const request = run.nextRequest()
    if (request === undefined) return finish(now)
    connection.dueAt = now
    connection.send(request)
  }
  const isWarm = (answers, elapsedMs) =>
    elapsedMs >= warmupMs && (answers >= warmupAnswers || elapsedMs >= warmupMs * WARMUP_FACTOR)
  const finish = (now) => {
    after ??= { at: now, ...usage(pids) }
    if (run.waiting().length === 0) run.end()
  }
  await run.connect(job, (connection, problem) => {
    const now = performance.now()
    if (problem !== undefined) run.fail(problem)
    if (after) return finish(now)
    if (problem === undefined && before) latencies.push(now - connection.dueAt)
    if (before === undefined && isWarm(++early, now - startedAt)) before = { at: now, ...usage(pids) }
    if (before && now - before.at >= durationMs) return finish(now)
    sendOn(connection, now)
  })
  startedAt = performance.now()
  for (const connection of run.connections) sendOn(connection, startedAt)
  await within(run, warmupMs * WARMUP_FACTOR + durationMs + GRACE_MS)
  run.close()
  if (!before || !after) {
    const isUsedUp = after !== undefined && early > 0 // by the warm-up: how fast it went is still told
    if (isUsedUp) {
      const rate = (early * 1000) / (after.at - startedAt)
      return { ...run.verdict(), ...NOTHING, rate, cpuMicros: pids.map(() => 0) }
    }
    if (run.failures === 0) run.fail('nothing was measured: too few requests, or no answer')
    return { ...run.verdict(), ...NOTHING, cpuMicros: pids.map(() => 0) }
  }
  const seconds = (after.at - before.at) / 1000
  const waited = (after.waited - before.waited) / (seconds * 1e6)
  return {
    ...run.verdict(),
    rate: latencies.length / seconds,
    seconds,
    latency: summary(latencies),
    cpuMicros: pids.map((_, index) => (after.cpu[index] - before.cpu[index]) / latencies.length),
    busy: (after.own - before.own) / (seconds * 1e6 * (1 - (waited || 0))),
    waited,
  }
}

/**
 * @param {Job & { rate: number }} job
 * @returns latency from when each request was due, where those without an answer at the end count with the time they
 *   waited; how many had not been sent when the last was due; the longest that this process was late, in ms
 */
export async function openLoop(job) {
  const { rate, warmupMs = 0, durationMs } = job
  const run = new Run(job)
  const total = Math.max(1, Math.ceil((rate * (warmupMs + durationMs)) / 1000))
  const latencies = []
  const free = []
  let sent = 0
  let answered = 0
  let startedAt = 0
  let isOver = false
  let usedUp = false
  let backlog
  let worstLagMs = 0

  const sendDue = () => {
    const now = performance.now()
    const due = Math.min(total, dueBy(now - startedAt, rate))
    while (sent < due && free.length > 0 && !usedUp) {
      const request = run.nextRequest()
      if (request === undefined) {
        usedUp = true
        break
      }
      const connection = free.shift()
      connection.dueAt = dueAtMs(sent++, rate)
      connection.sentAt = now
      connection.send(request)
    }
    if (due === total) backlog ??= total - sent
    if ((sent === total || usedUp) && answered === sent) run.end()
  }
  await run.connect(job, (connection, problem) => {
    const elapsed = performance.now() - startedAt
    answered++
    if (problem !== undefined) run.fail(problem)
    else if (connection.dueAt >= warmupMs) latencies.push(elapsed - connection.dueAt)
    free.push(connection)
    sendDue()
  })
  free.push(...run.connections)
  startedAt = performance.now()
  // Spinning, because timers are no finer than a millisecond and would send in bursts.
  let lastTick = startedAt
  const spin = () => {
    const now = performance.now()
    worstLagMs = Math.max(worstLagMs, now - lastTick)
    lastTick = now
    sendDue()
    if (!isOver && sent < total && !usedUp) setImmediate(spin)
  }
  spin()
  await within(run, warmupMs + durationMs + GRACE_MS, () => {
    const now = performance.now()
    for (const { sentAt, dueAt } of run.waiting()) {
      // those of a server that is only slow were sent just now
      if (now - sentAt >= GRACE_MS / 2) run.fail(NO_ANSWER)
      else latencies.push(now - startedAt - dueAt)
    }
  })
  isOver = true
  run.close()
  const elapsed = performance.now() - startedAt
  const unsent = usedUp ? 0 : total - sent
  for (let index = sent; index < sent + unsent; index++) latencies.push(elapsed - dueAtMs(index, rate))
  if (usedUp) run.fail('too few requests were prepared')
  return { ...run.verdict(), rate, latency: summary(latencies), backlog, worstLagMs }
}

/**
 * An open loop far above the server's capacity. Requests that fall due while every connection waits are not sent.
 * @param {Job & { rate: number }} job
 * @returns the number of good answers and their latency, counted from when they were sent; how many requests were refused
 *   with 503 or 429, and how many were not sent; anything else is a failure
 */
export async function overload(job) {
  const { rate, durationMs } = job
  const run = new Run(job)
  const latencies = []
  const free = []
  let due = 0
  let unsent = 0
  let refused = 0
  let startedAt = 0
  const sendDue = () => {
    const now = performance.now()
    for (const dueNow = dueBy(now - startedAt, rate); due < dueNow; due++) {
      const connection = free.pop()
      if (connection === undefined) {
        unsent += dueNow - due
        due = dueNow
        return
      }
      connection.dueAt = now
      connection.send(run.nextRequest())
    }
  }
  await run.connect(job, (connection, problem) => {
    if (problem === undefined) latencies.push(performance.now() - connection.dueAt)
    else if (/^(503|429) /.test(problem)) refused++
    else run.fail(problem)
    free.push(connection)
  })
  free.push(...run.connections)
  startedAt = performance.now()
  const spin = () => {
    if (performance.now() - startedAt >= durationMs) return run.end()
    sendDue()
    setImmediate(spin)
  }
  spin()
  await within(run, durationMs + GRACE_MS)
  run.close()
  return { ...run.verdict(), rate, answered: latencies.length, latency: summary(latencies), refused, unsent }
}

async function within(run, ms, onTimeout = () => run.failWaiting()) {
  let timer
  const timeout = new Promise((resolve) => {
    timer = setTimeout(() => {
      onTimeout()
      resolve()
    }, ms)
  })
  await Promise.race([run.ended, timeout])
  clearTimeout(timer)
}

function usage(pids) {
  const { user, system } = process.cpuUsage()
  return { own: user + system, cpu: pids.map(cpuMicros), waited: waitedMicros() }
}

/** CPU time a process has used, all threads, in µs; NaN without /proc. */
function cpuMicros(pid) {
  try {
    return readdirSync(`/proc/${pid}/task`).reduce((sum, thread) => sum + schedule(pid, thread)[0], 0)
  } catch {
    return Number.NaN
  }
}

/**
 * How long this thread was runnable while something else had its core, in µs; NaN without /proc. A server is not asked:
 * its processes and threads wait for each other.
 */
function waitedMicros() {
  try {
    return schedule(process.pid, process.pid)[1]
  } catch {
    return Number.NaN
  }
}

/** A thread's time on its core and the time it waited for it, in µs. */
function schedule(pid, thread) {
  const fields = readFileSync(`/proc/${pid}/task/${thread}/schedstat`, 'utf8').split(' ', 2)
  return fields.map((nanoseconds) => Number(nanoseconds) / 1000)
}
