// Three PostgreSQL servers that Patroni leads, and three etcd members, on loopback, from the programs that are installed. Each
// node reaches etcd, and is reached by the other nodes, through relays, which can be cut; our services connect directly.
// Neither PostgreSQL nor Patroni runs as root, so as root they run as the user `nobody`.
import { execFile, spawn } from 'node:child_process'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { chown, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { parse } from 'yaml'
import { freePort } from '../harness/free-port.js'
import { query } from '../postgres/cluster.js'
import { Relay } from '../postgres/relay.js'
import { sleep } from './send.js'

const RECIPE = fileURLToPath(new URL('../../deploy/patroni/patroni.yaml', import.meta.url))
const NAMES = ['db1', 'db2', 'db3']
const NOBODY = 65_534
const isRoot = process.getuid?.() === 0
const identity = isRoot ? { uid: NOBODY, gid: NOBODY } : {}
const WHOLE_TIMEOUT_MS = 180_000
const ASK_TIMEOUT_MS = 2_000
const OWNER = { name: 'survey_auth', password: 'change-survey-auth' }

/** Patroni before 3.0.3 writes the key of the leader through etcd's API v3 whoever has it: then it must use v2. */
const FIRST_SAFE_WITH_V3 = [3, 0, 3]

/** What has to be installed first, as a sentence; empty if nothing. */
export async function missingPrograms() {
  const { postgresql } = readRecipe()
  const found = await Promise.all(['patroni', 'patronictl', 'etcd'].map(isInstalled))
  const isComplete = found.every(Boolean) && existsSync(path.join(postgresql.bin_dir, 'postgres'))
  const packages = 'apt-get install patroni etcd-server postgresql-15'
  return isComplete ? '' : `patroni, patronictl, etcd and ${postgresql.bin_dir} are needed: ${packages}`
}

function readRecipe() {
  return parse(readFileSync(RECIPE, 'utf8'))
}

export class PatroniCluster {
  nodes = []
  #root
  #etcd = []
  #isSynchronous

  constructor(root, { synchronous_mode: isSynchronous = true } = {}) {
    this.#root = root
    this.#isSynchronous = isSynchronous
  }

  /** Three nodes, one of which leads; `weaker` changes the recipe: its settings in `dcs`, and the `api` of etcd. */
  static async create(weaker = {}) {
    const cluster = new PatroniCluster(await mkdtemp(path.join(tmpdir(), 'survey-auth-failover-')), weaker.dcs)
    try {
      await cluster.#start(weaker)
    } catch (error) {
      await cluster.destroy()
      throw error
    }
    return cluster
  }

  async #start({ dcs = {}, api }) {
    if (isRoot) await chown(this.#root, NOBODY, NOBODY)
    const etcdPorts = await this.#startEtcd()
    const settings = { etcd: api ?? ((await isSafeWithV3()) ? 'etcd3' : 'etcd'), dcs }
    for (const name of NAMES) {
      const node = await PatroniNode.create(name, path.join(this.#root, name), etcdPorts, settings)
      this.nodes.push(node)
      node.start()
    }
    await this.untilWhole()
    await this.#createDatabase()
  }

  async #startEtcd() {
    const members = []
    for (const name of NAMES) members.push({ name, client: await freePort(), peer: await freePort() })
    const everybody = members.map(({ name, peer }) => `${name}=http://127.0.0.1:${peer}`).join()
    for (const { name, client, peer } of members) {
      const args = {
        name,
        'data-dir': path.join(this.#root, `etcd-${name}`),
        'listen-client-urls': `http://127.0.0.1:${client}`,
        'advertise-client-urls': `http://127.0.0.1:${client}`,
        'listen-peer-urls': `http://127.0.0.1:${peer}`,
        'initial-advertise-peer-urls': `http://127.0.0.1:${peer}`,
        'initial-cluster': everybody,
        'enable-v2': 'true',
        'heartbeat-interval': '300',
        'election-timeout': '3000',
      }
      const flags = Object.entries(args).map(([flag, value]) => `--${flag}=${value}`)
      this.#etcd.push(spawn('etcd', flags, { ...identity, stdio: 'ignore' }))
    }
    const ports = members.map(({ client }) => client)
    await untilDecided(ports)
    return ports
  }

  async #createDatabase() {
    const { port } = await this.leader()
    const { username, password } = readRecipe().postgresql.authentication.superuser
    const url = `postgres://${username}:${password}@127.0.0.1:${port}/postgres`
    await query(url, `CREATE ROLE ${OWNER.name} LOGIN PASSWORD '${OWNER.password}'`)
    await query(url, `CREATE DATABASE ${OWNER.name} OWNER ${OWNER.name}`)
  }

  /** The address of our database, with all hosts. */
  get url() {
    const hosts = this.nodes.map(({ port }) => `127.0.0.1:${port}`).join()
    return `postgres://${OWNER.name}:${OWNER.password}@${hosts}/${OWNER.name}`
  }

  /** As one of these nodes knows them: name, role, state, timeline, lag. */
  async members(nodes = this.nodes) {
    for (const node of nodes) {
      const answer = await node.ask('/cluster').catch(() => undefined)
      if (answer?.members) return answer.members
    }
    return []
  }

  /** The node that leads, undefined while there is none. */
  leader() {
    return this.#withRole('leader')
  }

  /** The same, as others know it: one that is cut off believes that nothing has changed. */
  leaderWithout(node) {
    return this.#withRole(
      'leader',
      this.nodes.filter((one) => one !== node),
    )
  }

  /** The synchronous one; any other when none has to be. */
  standby() {
    return this.#withRole(this.#isSynchronous ? 'sync_standby' : 'replica')
  }

  async #withRole(role, asked) {
    const name = (await this.members(asked)).find((member) => member.role === role)?.name
    return this.nodes.find((node) => node.name === name)
  }

  /** All three run on one timeline, and one standby is synchronous if it has to be. @throws Error when that takes too long */
  async untilWhole() {
    const deadline = Date.now() + WHOLE_TIMEOUT_MS
    for (;;) {
      const members = await this.members()
      if (isWhole(members, this.#isSynchronous)) return
      if (Date.now() > deadline)
        throw new Error(`not whole: ${JSON.stringify(members)}, Patroni wrote:\n${this.output}`)
      await sleep(200)
    }
  }

  /** `patronictl switchover` to the standby. */
  async switchOver() {
    const candidate = await this.standby()
    const args = ['-c', candidate.config, 'switchover', '--candidate', candidate.name, '--force']
    await promisify(execFile)('patronictl', args, { ...identity, cwd: tmpdir() })
  }

  /** How the logs of Patroni and PostgreSQL end. */
  get output() {
    return this.nodes.map(({ name, output }) => `${name}:\n${output}`).join('\n')
  }

  async destroy() {
    for (const node of this.nodes) node.destroy()
    for (const child of this.#etcd) child.kill('SIGKILL')
    await sleep(200)
    await rm(this.#root, { recursive: true, force: true, maxRetries: 5 })
  }
}

function isWhole(members, isSynchronous) {
  const roles = members.map(({ role }) => role).sort()
  const isRunning = members.every(({ state, lag = 0 }) => ['running', 'streaming'].includes(state) && lag === 0)
  const timelines = new Set(members.map(({ timeline }) => timeline))
  const expected = isSynchronous ? 'leader,replica,sync_standby' : 'leader,replica,replica'
  return roles.join() === expected && isRunning && timelines.size === 1
}

class PatroniNode {
  name
  port
  config
  output = ''
  #restPort
  #dataDir
  #etcdRelays
  #inwardRelays
  #patroni

  static async create(name, dir, etcdPorts, { etcd, dcs }) {
    const node = new PatroniNode()
    node.name = name
    node.port = await freePort()
    node.#restPort = await freePort()
    node.#dataDir = path.join(dir, 'data')
    node.config = path.join(dir, 'patroni.json')
    await mkdir(dir)
    if (isRoot) await chown(dir, NOBODY, NOBODY)
    node.#etcdRelays = await Promise.all(etcdPorts.map((port) => Relay.open(port)))
    node.#inwardRelays = await Promise.all([node.port, node.#restPort].map((port) => Relay.open(port)))
    const [server, rest] = node.#inwardRelays
    const { bootstrap, postgresql, etcd3, ...recipe } = readRecipe()
    const own = {
      ...recipe,
      name,
      bootstrap: { ...bootstrap, dcs: { ...bootstrap.dcs, ...dcs } },
      restapi: { listen: `127.0.0.1:${node.#restPort}`, connect_address: `127.0.0.1:${rest.port}` },
      [etcd]: { ...etcd3, hosts: node.#etcdRelays.map((relay) => `127.0.0.1:${relay.port}`), use_proxies: true },
      postgresql: {
        ...postgresql,
        listen: `127.0.0.1:${node.port}`,
        connect_address: `127.0.0.1:${server.port}`,
        data_dir: node.#dataDir,
        pgpass: path.join(dir, 'pgpass'),
        parameters: { ...postgresql.parameters, unix_socket_directories: '' },
      },
    }
    await writeFile(node.config, JSON.stringify(own)) // which is YAML too
    return node
  }

  /** Starts Patroni, which starts PostgreSQL or takes over the one that runs. */
  start() {
    const child = spawn('patroni', [this.config], { ...identity, cwd: tmpdir(), stdio: ['ignore', 'pipe', 'pipe'] })
    this.#patroni = child
    for (const stream of [child.stdout, child.stderr]) {
      stream.on('data', (chunk) => {
        this.output = (this.output + chunk).slice(-4_000)
      })
    }
  }

  /** As when the machine loses its power. */
  kill() {
    signal([...this.#patroniPids(), ...this.#serverPids()], 'SIGKILL')
  }

  killServer() {
    signal(this.#serverPids(), 'SIGKILL')
  }

  /** As when a virtual machine is paused. */
  freeze() {
    signal([...this.#patroniPids(), ...this.#serverPids()], 'SIGSTOP')
  }

  /** As when it has no memory or hangs on its disk, but PostgreSQL does not. */
  freezePatroni() {
    this.#patroni.kill('SIGSTOP')
  }

  /** The server first: it is then as long as can be without its Patroni. */
  thaw() {
    signal([...this.#serverPids(), ...this.#patroniPids()], 'SIGCONT')
  }

  /** From etcd; with `everybody` from the other nodes too. */
  cutOff({ everybody }) {
    for (const relay of everybody ? [...this.#etcdRelays, ...this.#inwardRelays] : this.#etcdRelays) relay.silence()
  }

  /** As a firewall does with what is idle for long: its connections to etcd pass nothing more. New ones work. */
  forgetConnections() {
    for (const relay of this.#etcdRelays) relay.forgetConnections()
  }

  mend() {
    for (const relay of [...this.#etcdRelays, ...this.#inwardRelays]) relay.resume()
  }

  async ask(target) {
    const url = `http://127.0.0.1:${this.#restPort}${target}`
    return (await fetch(url, { signal: AbortSignal.timeout(ASK_TIMEOUT_MS) })).json()
  }

  destroy() {
    this.kill()
    for (const relay of [...this.#etcdRelays, ...this.#inwardRelays]) relay.close()
  }

  #patroniPids() {
    const { pid, exitCode, signalCode } = this.#patroni ?? {}
    return exitCode === null && signalCode === null ? descendants(pid) : []
  }

  /** The first is the one that starts the others. */
  #serverPids() {
    const file = path.join(this.#dataDir, 'postmaster.pid')
    if (!existsSync(file)) return []
    const [pid] = readFileSync(file, 'utf8').split('\n')
    // A server that was killed leaves the file, and its number may be another process's by then.
    return isServerOf(pid, this.#dataDir) ? descendants(Number(pid)) : []
  }
}

function isServerOf(pid, dataDir) {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes(dataDir)
  } catch {
    return false
  }
}

/** The process and what it has started, itself first. */
function descendants(pid) {
  const parents = readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map((name) => [Number(name), parentOf(name)])
  const found = [pid]
  for (const one of found) found.push(...parents.flatMap(([child, parent]) => (parent === one ? [child] : [])))
  return found
}

function parentOf(pid) {
  try {
    return Number(/\) \S (\d+)/.exec(readFileSync(`/proc/${pid}/stat`, 'utf8'))?.[1])
  } catch {
    return undefined // it has ended
  }
}

function signal(pids, name) {
  for (const pid of pids) {
    try {
      process.kill(pid, name)
    } catch (error) {
      if (error.code !== 'ESRCH') throw error
    }
  }
}

/** All members of etcd know the version of the cluster, without which Patroni ends. @throws Error when that takes too long */
async function untilDecided(ports) {
  const deadline = Date.now() + WHOLE_TIMEOUT_MS
  while (!(await Promise.all(ports.map(hasDecided))).every(Boolean)) {
    if (Date.now() > deadline) throw new Error('etcd does not form a cluster')
    await sleep(100)
  }
}

async function hasDecided(port) {
  const version = await fetch(`http://127.0.0.1:${port}/version`).then(
    (answer) => answer.json(),
    () => ({}),
  )
  return /^\d/.test(version.etcdcluster)
}

async function isSafeWithV3() {
  const { stdout } = await promisify(execFile)('patroni', ['--version'])
  const version = (/\d+\.\d+\.\d+/.exec(stdout)?.[0] ?? '').split('.').map(Number)
  const at = version.findIndex((part, n) => part !== FIRST_SAFE_WITH_V3[n])
  return at === -1 || version[at] > FIRST_SAFE_WITH_V3[at]
}

async function isInstalled(program) {
  return promisify(execFile)(program, ['--version']).then(
    () => true,
    ({ code }) => code !== 'ENOENT',
  )
}
