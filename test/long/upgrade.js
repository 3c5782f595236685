// `npm run test:upgrade`: a rolling upgrade to a next version, and the way back, under load. Two gateways, two token services and two
// survey services on one PostgreSQL, which the next program migrates while the old ones run; then processes are drained and
// replaced one after the other, services or gateways first. Nothing may fail. And the same on SQLite, where one process follows
// another.
import { execFileSync } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { buildIfNeeded } from '../../bin/build-if-needed.js'
import { freePort } from '../harness/free-port.js'
import { scriptOptions } from '../harness/script-options.js'
import { Cluster } from '../postgres/cluster.js'
import { Clients, mayChange } from './clients.js'
import { CROWD_ENV, checkCrowd, countsOf, createCrowd } from './crowd.js'
import { Fleet, PROGRAM } from './fleet.js'
import { makeNextProgram } from './next-program.js'
import { say, sleep } from './send.js'
import { Service } from './service.js'

const SERVICES = [
  ['token1', 'survey1'],
  ['token2', 'survey2'],
]
const GATEWAYS = [['gateway1'], ['gateway2']]
const SERVICES_FIRST = [...SERVICES, ...GATEWAYS]
const GATEWAYS_FIRST = [...GATEWAYS, ...SERVICES]
/** Each begins where the one before it ends, and the first again after the last. */
const WAYS = [
  { what: 'there, services first', to: 'next', steps: SERVICES_FIRST },
  { what: 'back, gateways first', to: 'old', steps: GATEWAYS_FIRST },
  { what: 'there, gateways first', to: 'next', steps: GATEWAYS_FIRST },
  { what: 'back, services first', to: 'old', steps: SERVICES_FIRST },
]
const DRAIN_SECONDS = '1'
const LOOK_EVERY_MS = 100
const WORK_MS = 500

const options = scriptOptions('npm run test:upgrade', {
  ways: [100, 'how often all processes are replaced, there and back in turn'],
  clients: [16, 'people who do one thing after another'],
  pause: [5, 'ms that each takes before each request'],
})

/** What went wrong, in words. */
async function onPostgres(programs) {
  const cluster = await Cluster.create()
  const fleet = new Fleet(await cluster.createDatabase(), { ...CROWD_ENV, DRAIN_SECONDS })
  const balancer = new Balancer(fleet)
  try {
    await fleet.start()
    balancer.start()
    const clients = new Clients(() => balancer.ready, options.pause)
    return [...(await upgrade(fleet, clients, programs)), ...fleet.ended]
  } finally {
    balancer.stop()
    await fleet.stop()
    await cluster.destroy()
  }
}

async function upgrade(fleet, clients, programs) {
  const people = await createCrowd(options.clients, {
    rpc: (...call) => fleet.rpc(...call),
    sendOf: () => clients.send,
  })
  const wrong = []
  const check = async (what) => {
    clients.pauseMs = 0
    await checkCrowd(people, wrong, what)
    clients.pauseMs = options.pause
  }
  const watched = async (what, works, isExcused = () => false) => {
    const load = { isOver: false }
    const working = people.map((person) => person.work(load, wrong))
    let [answered, longestMs] = [0, 0]
    for (const work of works) {
      const seen = await clients.during(work)
      const failed = seen.failed.filter((one) => !isExcused(one))
      wrong.push(...failed.map((one) => `${what}: ${one.what} answered ${one.status}`))
      answered += seen.answered
      longestMs = Math.max(longestMs, seen.longestMs)
    }
    load.isOver = true
    await Promise.all(working)
    await check('recent')
    say(`${what}: ${answered} requests, longest ${Math.round(longestMs)} ms, ${wrong.length} wrong`)
  }

  await watched('migrated', [() => migrate(fleet, programs.next)])
  const killed = () => Promise.all(SERVICES[0].map((name) => startAfterKill(fleet, name)))
  await watched('killed, and started again on the new schema', [killed], mayChange)
  for (let count = 0; count < options.ways && wrong.length === 0; count += 1) {
    const { what, to, steps } = WAYS[count % WAYS.length]
    const replace = async (names) => {
      await Promise.all(names.map((name) => replaceBy(fleet, name, programs[to])))
      await untilAllAreSeen(fleet)
    }
    await watched(
      what,
      steps.map((names) => () => replace(names)),
    )
  }
  await check('everything')
  say(`on PostgreSQL: ${JSON.stringify(countsOf(people))}`)
  if (wrong.length > 0) say(fleet.output.slice(-4_000))
  return wrong
}

async function migrate(fleet, { command }) {
  const { exitCode, stdout, stderr } = await fleet.run(command, ['migrate', '--json'])
  if (exitCode !== 0) throw new Error(`migrate exited ${exitCode}: ${stderr}`)
  requireMigrated(JSON.parse(stdout))
}

function requireMigrated(databases) {
  for (const { database, from_version, to_version } of databases) {
    if (to_version !== from_version + 1) throw new Error(`the ${database} database went to version ${to_version}`)
  }
}

async function startAfterKill(fleet, name) {
  await fleet.end(name, 'SIGKILL')
  await fleet.startAgain(name)
}

async function replaceBy(fleet, name, { command, version }) {
  await fleet.end(name, 'SIGTERM')
  await fleet.startAgain(name, {}, command)
  const metrics = await (await fetch(`${fleet.adminUrls[name]}/metrics`)).text()
  const line = metrics.split('\n').find((one) => one.startsWith('survey_auth_build_info'))
  if (!line?.includes(`version="${version}"`)) throw new Error(`${name} runs another version: ${line}`)
}

/** The next one may be ended once all others call those that are new. */
async function untilAllAreSeen(fleet) {
  const lacks = (url) => fetch(`${url}/readyz`).then((answer) => answer.text())
  while ((await Promise.all(Object.values(fleet.adminUrls).map(lacks))).join().includes('unavailable')) {
    await sleep(LOOK_EVERY_MS)
  }
}

/** Knows which gateways say that they are ready, as a balancer in front of them does. */
class Balancer {
  ready = []
  #fleet
  #isStopped = false

  constructor(fleet) {
    this.#fleet = fleet
  }

  start() {
    this.ready = this.#fleet.gateways
    for (const [n, url] of this.#fleet.gateways.entries()) void this.#follow(`gateway${n + 1}`, url)
  }

  stop() {
    this.#isStopped = true
  }

  async #follow(name, url) {
    while (!this.#isStopped) {
      const isReady = await this.#fleet.isReady(name)
      if (isReady !== this.ready.includes(url)) {
        this.ready = isReady ? [...this.ready, url] : this.ready.filter((one) => one !== url)
      }
      await sleep(LOOK_EVERY_MS)
    }
  }
}

/** What went wrong, in words. */
async function onSqlite({ old, next }) {
  const service = new Service(await freePort())
  const wrong = []
  const use = async (people) => {
    await checkCrowd(people, wrong, 'everything')
    const load = { isOver: false }
    const working = people.map((person) => person.work(load, wrong))
    await sleep(WORK_MS)
    load.isOver = true
    await Promise.all(working)
    await checkCrowd(people, wrong, 'recent')
    await service.kill()
  }
  try {
    await service.start()
    const people = await createCrowd(options.clients, { rpc: service.rpc, sendOf: () => service.send })
    await use(people)
    const migrated = execFileSync(process.execPath, [next.command, 'migrate', '--json'], { env: service.env })
    requireMigrated(JSON.parse(migrated.toString('utf8')))
    for (const { command } of [old, next, old]) {
      service.program = command
      await service.start()
      await use(people)
    }
    say(`on SQLite: ${JSON.stringify(countsOf(people))}`)
    return wrong
  } finally {
    await service.kill()
    rmSync(service.dataDir, { recursive: true, force: true })
  }
}

buildIfNeeded()
const folder = mkdtempSync(path.join(tmpdir(), 'survey-auth-next-'))
try {
  const nextCommand = makeNextProgram(folder)
  const programs = { old: programOf(PROGRAM), next: programOf(nextCommand) }
  const both = await Promise.allSettled([onSqlite(programs), onPostgres(programs)])
  const wrong = both.flatMap(({ value, reason }) => value ?? [reason.stack])
  for (const one of wrong.slice(0, 20)) say(`WRONG: ${one}`)
  say(`from ${programs.old.version} to ${programs.next.version}: ${wrong.length} wrong`)
  process.exitCode = wrong.length === 0 && programs.old.version !== programs.next.version ? 0 : 1
} finally {
  rmSync(folder, { recursive: true, force: true })
}

function programOf(command) {
  const [version] = execFileSync(process.execPath, [command, '--version']).toString('utf8').split(' ')
  return { command, version }
}
