// The crash test of a service in one process on SQLite: kill -9, start, check.
import { rmSync } from 'node:fs'
import { loadavg } from 'node:os'
import path from 'node:path'
import { Database } from '../../dist/services/storage/sqlite/driver.js'
import { freePort } from '../harness/free-port.js'
import { checkCrowd, countsOf, createCrowd, spread } from './crowd.js'
import { say, sleep } from './send.js'
import { Service } from './service.js'

const READY_TARGET_MS = 2000
/** How long the load runs before a kill. */
const LOAD_MS = { least: 150, most: 1500 }
/** The share of restarts that are killed themselves, and how long after their start. */
const KILLED_RESTARTS = 0.2
const RESTART_MS = 2000

/** The exit code: 0 when nothing that was acknowledged was lost. */
export async function crashSqlite(options) {
  const service = new Service(await freePort())
  try {
    return await run(service, options)
  } finally {
    await service.kill()
    rmSync(service.dataDir, { recursive: true, force: true })
  }
}

async function run(service, options) {
  await service.start()
  const people = await createCrowd(options.clients, { rpc: service.rpc, sendOf: () => service.send })
  const readyMs = []
  const failures = []
  const endMs = Date.now() + options.minutes * 60_000
  let kills = 0
  let checks = 0
  let restartKills = 0
  while (kills < options.rounds && Date.now() < endMs && failures.length === 0) {
    const load = { isOver: false }
    const clients = people.map((person) => person.work(load, failures))
    await sleep(LOAD_MS.least + Math.random() * (LOAD_MS.most - LOAD_MS.least))
    await service.kill()
    load.isOver = true
    await Promise.all(clients)
    kills += 1
    if (Math.random() < KILLED_RESTARTS) {
      service.spawn()
      await sleep(Math.random() * RESTART_MS)
      await service.kill()
      restartKills += 1
    }
    readyMs.push(await service.start())
    checks += await checkCrowd(people, failures, 'recent')
    if (kills % 20 === 0) say(`${kills} kills, ${checks} checks, load ${loadavg()[0]?.toFixed(1)}`)
  }
  checks += await checkCrowd(people, failures, 'everything')
  await service.kill()
  for (const name of ['token.db', 'survey.db']) failures.push(...integrityFailures(path.join(service.dataDir, name)))
  return report({ people, kills, restartKills, checks, readyMs, failures })
}

function report({ people, kills, restartKills, checks, readyMs, failures }) {
  const counts = countsOf(people)
  const acknowledged = Object.entries(counts).map(([name, count]) => `${name} ${count}`)
  const load = loadavg().map((one) => one.toFixed(1))
  say(`killed ${kills} times under ${people.length} clients, ${restartKills} times while starting, ${checks} checks`)
  say(`acknowledged or lost: ${acknowledged.join(', ')}`)
  say(`ready again after: ${spread(readyMs)} (target ${READY_TARGET_MS} ms), load of the machine ${load.join(' ')}`)
  for (const failure of failures.slice(0, 20)) say(`VIOLATION: ${failure}`)
  say(failures.length === 0 ? 'no violation' : `${failures.length} violations`)
  if (kills === 0 || checks === 0 || !counts['exchange OK']) {
    say('nothing was proved: no kill, no check or no exchange')
    return 1
  }
  return failures.length === 0 ? 0 : 1
}

function integrityFailures(file) {
  const db = new Database(file, { fileMustExist: true })
  const answer = db.pragma('integrity_check', { simple: true })
  db.close()
  return answer === 'ok' ? [] : [`${path.basename(file)}: integrity_check says ${answer}`]
}
