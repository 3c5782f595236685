// `npm run test:replace`: two gateways, two token services and two survey services on one PostgreSQL, under load, while each of the
// services is killed, stopped and drained, one at a time, and started again. Everything must be answered but, when one is
// killed, requests in flight that may have changed something.
import { buildIfNeeded } from '../../bin/build-if-needed.js'
import { scriptOptions } from '../harness/script-options.js'
import { Cluster } from '../postgres/cluster.js'
import { Clients, mayChange } from './clients.js'
import { CROWD_ENV, checkCrowd, countsOf, createCrowd, spread } from './crowd.js'
import { Fleet } from './fleet.js'
import { say } from './send.js'

const SERVICES = ['token1', 'token2', 'survey1', 'survey2']
const DRAIN_MS = 1_000
/** How each ends, and the settings with which it must have started. */
const WAYS = {
  killed: { signal: 'SIGKILL' },
  stopped: { signal: 'SIGTERM' },
  drained: { signal: 'SIGTERM', env: { DRAIN_SECONDS: String(DRAIN_MS / 1000) } },
}

const options = scriptOptions('npm run test:replace', {
  rounds: [25, 'how often each service is killed, stopped and drained'],
  clients: [16, 'people who do one thing after another'],
  pause: [5, 'ms that each takes before each request'],
})

async function main() {
  await fleet.start()
  const clients = new Clients(() => fleet.gateways, options.pause)
  const people = await createCrowd(options.clients, {
    rpc: (...call) => fleet.rpc(...call),
    sendOf: () => clients.send,
  })
  const rows = Object.fromEntries(SERVICES.flatMap((name) => Object.keys(WAYS).map((way) => [`${name} ${way}`, []])))
  const violations = []
  for (let round = 0; round < options.rounds && violations.length === 0; round += 1) {
    const load = { isOver: false }
    const working = people.map((person) => person.work(load, violations))
    for (const name of SERVICES) {
      for (const way of Object.keys(WAYS)) rows[`${name} ${way}`].push(await replace(name, way, clients))
    }
    load.isOver = true
    await Promise.all(working)
    await checkCrowd(people, violations, 'recent')
    say(`round ${round + 1}: ${failedIn(rows).length} failed, ${JSON.stringify(countsOf(people))}`)
  }
  await checkCrowd(people, violations, 'everything')
  return report(rows, clients, [...violations, ...fleet.ended])
}

async function replace(name, way, clients) {
  const { signal } = WAYS[way]
  let goneMs = 0
  const seen = await clients.during(async () => {
    await fleet.end(name, signal)
    goneMs = performance.now()
    await fleet.startAgain(name, envOfNext(way))
  })
  const isExcused = (one) => way === 'killed' && mayChange(one) && one.startMs < goneMs
  return {
    ...seen,
    inFlight: seen.failed.filter(isExcused).length,
    failed: seen.failed.filter((one) => !isExcused(one)),
  }
}

function envOfNext(way) {
  const ways = Object.keys(WAYS)
  return WAYS[ways[(ways.indexOf(way) + 1) % ways.length]].env ?? { DRAIN_SECONDS: '0' }
}

function report(rows, clients, violations) {
  const sum = (list, of) => list.reduce((total, one) => total + of(one), 0)
  const table = Object.entries(rows).map(([what, outages]) => [
    what,
    {
      times: outages.length,
      answered: sum(outages, (one) => one.answered),
      'failed in flight': sum(outages, (one) => one.inFlight),
      'failed besides': sum(outages, (one) => one.failed.length),
      'longest answer, ms': Math.round(Math.max(...outages.map((one) => one.longestMs))),
    },
  ])
  console.table(Object.fromEntries(table))
  const failed = failedIn(rows)
  for (const { what, status } of failed.slice(0, 20)) say(`${status} ${what}`)
  for (const violation of violations.slice(0, 20)) say(`VIOLATION: ${violation}`)
  say(
    `longest answers of all: ${spread(Object.values(rows).flatMap((outages) => outages.map((one) => one.longestMs)))}`,
  )
  say(`${clients.count} requests, ${failed.length} failed besides those in flight, ${violations.length} violations`)
  if (failed.length + violations.length > 0) say(fleet.output.slice(-4_000))
  return failed.length + violations.length === 0 ? 0 : 1
}

function failedIn(rows) {
  return Object.values(rows).flatMap((outages) => outages.flatMap((one) => one.failed))
}

buildIfNeeded()
const cluster = await Cluster.create()
const fleet = new Fleet(await cluster.createDatabase(), CROWD_ENV)
process.exitCode = await main().finally(async () => {
  await fleet.stop()
  await cluster.destroy()
})
