// `npm run test:failover`: breaks a PostgreSQL cluster that runs with deploy/patroni/patroni.yaml in each of the ways below, while
// two gateways, two token and two survey services and the load on them go on, and checks later answers against what had been
// acknowledged. Ends at the first loss; with weaker settings goes on and counts the codes and grants of which something that was
// acknowledged is lost. Needs Linux, and Patroni, etcd and PostgreSQL from the system's packages.
import { Agent } from 'node:http'
import { loadavg } from 'node:os'
import { buildIfNeeded } from '../../bin/build-if-needed.js'
import { scriptOptions } from '../harness/script-options.js'
import { CROWD_ENV, checkCrowd, countsOf, createCrowd } from './crowd.js'
import { Fleet } from './fleet.js'
import { missingPrograms, PatroniCluster } from './patroni.js'
import { say, sendTo, sleep } from './send.js'

/** How long the load runs before a fault, and on each side of its end. */
const LOAD_MS = 3_000
/** A fault that no other node makes up for in that time is a failure. */
const FAILOVER_TIMEOUT_MS = 90_000
const SERVED_TIMEOUT_MS = 60_000
/** How long a client waits after a 503, so that it leaves the processor to the servers. */
const RETRY_AFTER_MS = 50
/** Requests whose OK says that something was stored. */
const WRITES =
  /^(POST \/connect\/oauth2\/authorize|POST \/connect\/apps\/disconnect|GET \/api\/oauth2\/(access|refresh)_token)\b/

/** What the recipe is compared with. */
const WEAKER = {
  recipe: {},
  'etcd-v3': { api: 'etcd3' },
  'not-strict': { dcs: { synchronous_mode_strict: false } },
  asynchronous: { dcs: { synchronous_mode: false, synchronous_mode_strict: false } },
}

/** `moves`: whether another node has to lead before it ends. */
const FAULTS = {
  'leader killed': { moves: true, begin: ({ leader }) => leader.kill(), end: ({ leader }) => leader.start() },
  'PostgreSQL of the leader killed': { moves: true, begin: ({ leader }) => leader.killServer() },
  'leader frozen and thawed': {
    moves: true,
    begin: ({ leader }) => leader.freeze(),
    end: ({ leader }) => leader.thaw(),
  },
  'leader frozen and thawed, its connections forgotten': {
    moves: true,
    begin: ({ leader }) => {
      leader.freeze()
      leader.forgetConnections()
    },
    end: ({ leader }) => leader.thaw(),
  },
  'Patroni of the leader frozen and thawed': {
    moves: true,
    begin: ({ leader }) => leader.freezePatroni(),
    end: ({ leader }) => leader.thaw(),
  },
  'leader cut off from etcd': {
    moves: true,
    begin: ({ leader }) => leader.cutOff({ everybody: false }),
    end: ({ leader }) => leader.mend(),
  },
  'leader cut off from etcd and standbys': {
    moves: true,
    begin: ({ leader }) => leader.cutOff({ everybody: true }),
    end: ({ leader }) => leader.mend(),
  },
  switchover: { moves: true, begin: ({ cluster }) => cluster.switchOver() },
  'synchronous standby killed': { begin: ({ standby }) => standby.kill(), end: ({ standby }) => standby.start() },
  'synchronous standby frozen and thawed': {
    begin: ({ standby }) => standby.freeze(),
    end: ({ standby }) => standby.thaw(),
  },
}

const options = scriptOptions('npm run test:failover', {
  faults: [50, 'how many, of each kind in turn'],
  only: ['', 'what the name of a fault begins with'],
  clients: [16, "people at a time, each with an app's server behind"],
  settings: [
    'recipe',
    'the recipe, or what is weaker; etcd-v3: that API of etcd even with a Patroni before 3.0.3',
    Object.keys(WEAKER),
  ],
  minutes: [Number.POSITIVE_INFINITY, 'no further fault after this time'],
})

async function main() {
  const cluster = await PatroniCluster.create(WEAKER[options.settings])
  const fleet = new Fleet(cluster.url, CROWD_ENV)
  try {
    await fleet.start()
    return await run(cluster, fleet)
  } finally {
    await fleet.stop()
    await cluster.destroy()
  }
}

async function run(cluster, fleet) {
  const clients = new Clients(fleet.gateways)
  const rpc = (method, message) => fleet.rpc(method, message)
  const people = await createCrowd(options.clients, { rpc, sendOf: (n) => clients.sendOf(n) })
  const names = Object.keys(FAULTS).filter((name) => name.startsWith(options.only))
  const rows = new Map()
  const failures = []
  const endMs = Date.now() + options.minutes * 60_000
  const mayLose = options.settings !== 'recipe'
  try {
    for (let n = 0; n < options.faults && Date.now() < endMs && (mayLose || failures.length === 0); n += 1) {
      const name = names[n % names.length]
      const seen = await survive(name, { cluster, people, clients, failures })
      const row = rows.get(name) ?? { times: 0, acknowledged: 0, lost: 0, 'longest gap in s': 0 }
      row.times += 1
      row.acknowledged += seen.acknowledged
      row.lost += seen.lost
      row['longest gap in s'] = Math.max(row['longest gap in s'], seen.gapMs / 1000)
      rows.set(name, row)
      say(`${n + 1}. ${name}: ${JSON.stringify(seen)}, load ${loadavg()[0]?.toFixed(1)}`)
    }
    if (mayLose || failures.length === 0) await checkCrowd(people, failures, 'everything')
  } catch (error) {
    failures.push(error.stack)
  }
  failures.push(...fleet.ended)
  const exitCode = report(rows, people, failures)
  if (exitCode !== 0) say(`the processes wrote:\n${fleet.output.slice(-4_000)}\n${cluster.output}`)
  return exitCode
}

/** What was acknowledged during one fault, how much of it is lost, and the longest time without an acknowledged write. */
async function survive(name, { cluster, people, clients, failures }) {
  const before = failures.length
  const { moves = false, begin, end = () => undefined } = FAULTS[name]
  const concerned = { cluster, leader: await cluster.leader(), standby: await cluster.standby() }
  const load = { isOver: false }
  const working = people.map((person) => person.work(load, failures))
  await sleep(LOAD_MS)
  const watch = clients.watch()
  try {
    await begin(concerned)
    if (moves) await untilMoved(cluster, concerned.leader)
    await untilServed(watch)
    await sleep(LOAD_MS)
  } finally {
    await end(concerned)
  }
  await sleep(LOAD_MS)
  load.isOver = true
  await Promise.all(working)
  await cluster.untilWhole()
  if (await clients.areServed()) await checkCrowd(people, failures, 'recent')
  else failures.push('no data is used any more: a server leads that an acknowledged promotion had left behind')
  return { acknowledged: watch.acknowledged, gapMs: Math.round(watch.longestGapMs), lost: failures.length - before }
}

/** Another node than `former` leads. */
async function untilMoved(cluster, former) {
  const deadline = Date.now() + FAILOVER_TIMEOUT_MS
  for (;;) {
    const leader = await cluster.leaderWithout(former)
    if (leader !== undefined && leader !== former) return
    if (Date.now() > deadline) throw new Error('no other node leads')
    await sleep(200)
  }
}

/** Both gateways acknowledge a write from now on. */
async function untilServed(watch) {
  const since = performance.now()
  while (!watch.isServedSince(since)) {
    if (performance.now() - since > FAILOVER_TIMEOUT_MS) throw new Error('no write is acknowledged')
    await sleep(50)
  }
}

function report(rows, people, failures) {
  console.table(Object.fromEntries(rows))
  const outcomes = Object.entries(countsOf(people)).map(([name, count]) => `${name} ${count}`)
  const times = [...rows.values()].reduce((sum, row) => sum + row.times, 0)
  say(`${times} faults, settings: ${options.settings}; outcomes: ${outcomes.join(', ')}`)
  for (const failure of failures.slice(0, 20)) say(`VIOLATION: ${failure}`)
  say(failures.length === 0 ? 'no violation' : `${failures.length} violations`)
  return failures.length === 0 && times > 0 ? 0 : 1
}

/** How clients reach the gateways: in turn. */
class Clients {
  #gateways
  #agent = new Agent({ keepAlive: true })
  #turn = 0
  #watch

  constructor(gateways) {
    this.#gateways = gateways.map((url) => new URL(url))
  }

  sendOf() {
    return (outgoing) => this.#send(this.#turn++ % this.#gateways.length, outgoing)
  }

  async #send(gateway, outgoing) {
    const { hostname: host, port } = this.#gateways[gateway]
    const answer = await sendTo({ agent: this.#agent, host, port }, outgoing)
    const isOk = answer.status === 200 || answer.status === 303
    if (isOk && WRITES.test(`${outgoing.method ?? 'GET'} ${outgoing.target}`)) this.#watch?.acknowledge(gateway)
    if (answer.status === 503) await sleep(RETRY_AFTER_MS)
    return answer
  }

  /** Counts acknowledged writes from now on. */
  watch() {
    this.#watch = new Watch(this.#gateways.length)
    return this.#watch
  }

  /** Whether both gateways answer reads, at the latest after a minute. */
  async areServed() {
    const deadline = Date.now() + SERVED_TIMEOUT_MS
    for (const { origin } of this.#gateways) {
      while ((await fetch(`${origin}/api/surveys?appid=app_x&access_token=sat_x&openid=o`)).status === 503) {
        if (Date.now() > deadline) return false
        await sleep(100)
      }
    }
    return true
  }
}

class Watch {
  acknowledged = 0
  longestGapMs = 0
  /** When each gateway last acknowledged a write. */
  #lastMs

  constructor(gateways) {
    this.#lastMs = new Array(gateways).fill(performance.now())
  }

  acknowledge(gateway) {
    const now = performance.now()
    this.acknowledged += 1
    this.longestGapMs = Math.max(this.longestGapMs, now - this.#lastMs[gateway])
    this.#lastMs[gateway] = now
  }

  isServedSince(ms) {
    return this.#lastMs.every((last) => last > ms)
  }
}

const missing = await missingPrograms()
if (missing) {
  say(missing)
  process.exitCode = 69
} else {
  buildIfNeeded()
  process.exitCode = await main()
}
