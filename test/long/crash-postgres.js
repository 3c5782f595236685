// The crash test of two gateways, two token and two survey services on PostgreSQL: the database server is stopped as by a
// crash and restarted, while the six processes and the load on them go on.
import { Agent } from 'node:http'
import { loadavg } from 'node:os'
import { Cluster } from '../postgres/cluster.js'
import { CROWD_ENV, checkCrowd, countsOf, createCrowd, spread } from './crowd.js'
import { Fleet } from './fleet.js'
import { say, sendTo, sleep } from './send.js'

const RECOVERY_TARGET_MS = 5_000
const RECOVERY_TIMEOUT_MS = 30_000
/** No answer takes longer: a page asks twice at most, each time with the gateway's deadline of 4.5 s. */
const LONGEST_ANSWER_MS = 10_000
/** How long the load runs before a stop. */
const LOAD_MS = { least: 150, most: 1500 }
/** The share of starts that are interrupted, and how long after they began. */
const STOPPED_STARTS = 0.2
const START_MS = 400
/** How long a client waits after a 503, so that it leaves the processor to the starting server. */
const RETRY_AFTER_MS = 50
const ENDPOINTS = [
  'GET /connect/oauth2/authorize',
  'POST /connect/oauth2/authorize',
  'GET /connect/apps',
  'POST /connect/apps/disconnect',
  'GET /api/oauth2/access_token',
  'GET /api/oauth2/refresh_token',
  'GET /api/oauth2/user',
  'GET /api/surveys',
  'GET /api/surveys/{id}',
]

/** The exit code: 0 when nothing acknowledged was lost and everything was back in time. */
export async function crashPostgres(options) {
  const cluster = await Cluster.create()
  const fleet = new Fleet(await cluster.createDatabase(), CROWD_ENV)
  try {
    await fleet.start()
    return await run(cluster, fleet, options)
  } finally {
    await fleet.stop()
    await cluster.destroy()
  }
}

async function run(cluster, fleet, options) {
  const clients = new Clients(fleet.gateways)
  const rpc = (method, message) => fleet.rpc(method, message)
  const people = await createCrowd(options.clients, { rpc, sendOf: (n) => clients.sendOf(n) })
  const seen = { people, stops: 0, stoppedStarts: 0, checks: 0, startMs: [], recoveries: [], failures: [] }
  const { failures } = seen
  const endMs = Date.now() + options.minutes * 60_000
  while (seen.stops < options.rounds && Date.now() < endMs && failures.length === 0) {
    const load = { isOver: false }
    const working = people.map((person, n) =>
      n < fleet.gateways.length ? person.tour(load, failures) : person.work(load, failures),
    )
    await sleep(LOAD_MS.least + Math.random() * (LOAD_MS.most - LOAD_MS.least))
    await crashAndStart(cluster, seen)
    const recovery = clients.watchRecovery()
    await recovery.until(() => failures.length > 0)
    load.isOver = true
    await Promise.all(working)
    failures.push(...recovery.failures())
    seen.recoveries.push(recovery)
    seen.checks += await checkCrowd(people, failures, 'recent')
    if (seen.stops % 10 === 0) say(`${seen.stops} stops, ${seen.checks} checks, load ${loadavg()[0]?.toFixed(1)}`)
  }
  seen.checks += await checkCrowd(people, failures, 'everything')
  failures.push(...fleet.ended)
  if (clients.longestAnswerMs > LONGEST_ANSWER_MS)
    failures.push(`an answer took ${Math.round(clients.longestAnswerMs)} ms`)
  const exitCode = report(seen, clients, fleet)
  if (exitCode !== 0) say(`the processes wrote:\n${fleet.output.slice(-4_000)}`)
  return exitCode
}

/** Stops the server, sometimes once more while it starts, and returns when it takes connections. */
async function crashAndStart(cluster, seen) {
  await cluster.stop('immediate')
  seen.stops += 1
  if (Math.random() < STOPPED_STARTS) {
    const interrupted = cluster.start().catch(() => undefined)
    await sleep(Math.random() * START_MS)
    await cluster.stop('immediate')
    await interrupted
    seen.stoppedStarts += 1
  }
  const startedAt = performance.now()
  await cluster.start()
  seen.startMs.push(performance.now() - startedAt)
}

function report({ people, stops, stoppedStarts, checks, startMs, recoveries, failures }, clients, fleet) {
  const counts = countsOf(people)
  const outcomes = Object.entries(counts).map(([name, count]) => `${name} ${count}`)
  const load = loadavg().map((one) => one.toFixed(1))
  say(`stopped ${stops} times under ${people.length} clients, ${stoppedStarts} times while starting, ${checks} checks`)
  say(`outcomes: ${outcomes.join(', ')}`)
  say(`PostgreSQL took connections again after: ${spread(startMs)}, load of the machine ${load.join(' ')}`)
  say(`the first OK after that, by the slower of the two gateways (target ${RECOVERY_TARGET_MS} ms):`)
  for (const endpoint of ENDPOINTS) say(`  ${endpoint}: ${spread(recoveries.map((one) => one.slowest(endpoint)))}`)
  say(`  all of these: ${spread(recoveries.map((one) => Math.max(...ENDPOINTS.map((name) => one.slowest(name)))))}`)
  say(`longest answer: ${Math.round(clients.longestAnswerMs)} ms`)
  say(`6 processes, ${fleet.ended.length} ended`)
  for (const failure of failures.slice(0, 20)) say(`VIOLATION: ${failure}`)
  say(failures.length === 0 ? 'no violation' : `${failures.length} violations`)
  if (stops === 0 || checks === 0 || !counts['exchange OK']) {
    say('nothing was proved: no stop, no check or no exchange')
    return 1
  }
  return failures.length === 0 ? 0 : 1
}

/** How clients reach the gateways: the first client uses the first, the second the second, the others take turns. */
class Clients {
  longestAnswerMs = 0
  #gateways
  #agent = new Agent({ keepAlive: true })
  #turn = 0
  #recovery

  constructor(gateways) {
    this.#gateways = gateways.map((url) => new URL(url))
  }

  sendOf(client) {
    const isBound = client < this.#gateways.length
    return (outgoing) => this.#send(isBound ? client : this.#turn++ % this.#gateways.length, outgoing)
  }

  /** @throws Error when there is no answer, which is a violation, since no process ends. */
  async #send(gateway, outgoing) {
    const { hostname: host, port } = this.#gateways[gateway]
    const startedAt = performance.now()
    const answer = await sendTo({ agent: this.#agent, host, port }, outgoing).catch((error) => {
      throw new Error(`no answer from gateway ${gateway + 1}`, { cause: error })
    })
    this.longestAnswerMs = Math.max(this.longestAnswerMs, performance.now() - startedAt)
    if (answer.status === 200 || answer.status === 303) this.#recovery?.answered(endpointOf(outgoing), gateway)
    if (answer.status === 503) await sleep(RETRY_AFTER_MS)
    return answer
  }

  /** Records from now on when each endpoint of each gateway first answers OK. */
  watchRecovery() {
    this.#recovery = new Recovery(this.#gateways.length)
    return this.#recovery
  }
}

class Recovery {
  #startedAt = performance.now()
  #gateways
  /** ms until the first OK, by endpoint and gateway. */
  #firstMs = new Map()

  constructor(gateways) {
    this.#gateways = gateways
  }

  answered(endpoint, gateway) {
    const key = `${endpoint} ${gateway}`
    if (!this.#firstMs.has(key)) this.#firstMs.set(key, performance.now() - this.#startedAt)
  }

  /** Fulfils when everything has answered, the time is over or `isGivenUp`. */
  async until(isGivenUp) {
    const isDone = () => this.#firstMs.size === ENDPOINTS.length * this.#gateways
    while (!isDone() && !isGivenUp() && performance.now() - this.#startedAt < RECOVERY_TIMEOUT_MS) await sleep(10)
  }

  /** ms until both gateways had answered; Infinity when one has not. */
  slowest(endpoint) {
    const each = Array.from({ length: this.#gateways }, (_, n) => this.#firstMs.get(`${endpoint} ${n}`) ?? Infinity)
    return Math.max(...each)
  }

  failures() {
    const late = ENDPOINTS.filter((endpoint) => this.slowest(endpoint) > RECOVERY_TARGET_MS)
    return late.map((endpoint) => `${endpoint} was back after ${Math.round(this.slowest(endpoint))} ms`)
  }
}

function endpointOf({ target, method = 'GET' }) {
  const [path] = target.split('?')
  return `${method} ${path.replace(/^\/api\/surveys\/\d+$/, '/api/surveys/{id}')}`
}
