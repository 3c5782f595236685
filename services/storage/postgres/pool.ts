// Connections to the database that takes writes. Finds it among several hosts and follows it when it moves.
import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import type { Connections } from '../connections.js'
import type { Flaw } from '../flaw.js'
import { StoreUnavailable } from '../store-unavailable.js'
import { type Host, type PostgresAddress, parseAddress } from './address.js'
import {
  isDisconnected,
  isReadOnly,
  isServerFull,
  isUnanswered,
  isWaitOver,
  NotWritable,
  PoolExhausted,
} from './errors.js'
import { OpenSockets } from './open-sockets.js'
import { describe, type Server } from './server.js'
import { prepareSession, type SessionTimes } from './session.js'

export interface PoolOptions extends Partial<SessionTimes> {
  /** `postgres://…`, with several hosts if there are standbys. */
  readonly url: string
  /** Connections of this process, at most. */
  readonly poolSize?: number
  /** Longest wait for a connection, whether a new one or one that is in use, in ms. */
  readonly connectTimeoutMs?: number
}

const DEFAULTS = {
  poolSize: 10, // what a small server runs at once anyway; 9 processes fit its 100 connections
  connectTimeoutMs: 2_000, // a call that is made for a request has 4.5 s, RPC_TIMEOUT_MS
  statementTimeoutMs: 3_000,
  lockTimeoutMs: 2_000,
} as const

const ANSWER_SLACK_MS = 500 // after the server should have cancelled a statement, its host is taken for gone
const MAX_WAITING_PER_CONNECTION = 50 // more callers are refused at once: they would wait beyond their deadlines
const KEEP_IDLE_MS = 60_000
const KEEPALIVE_AFTER_MS = 10_000
const PROBE_PAUSE_MS = 100 // after a search that found no primary
const LOOK_EVERY_MS = 5_000 // for a primary beside the one in use: what is written to one of them will be lost
const SHARE_FOR_MS = 1_000 // while the server has no connection to spare: then it is asked for more again
const LET_GO_PAUSE_MS = 50 // between checks whether a connection of a closing pool is still in use

/** Parses bigint as a number: every one of ours is a time in ms or an id below 2^53. */
const types: pg.CustomTypesConfig = {
  getTypeParser: ((oid: number, format: 'text' | 'binary') =>
    oid === pg.types.builtins.INT8 ? Number : pg.types.getTypeParser(oid, format)) as typeof pg.types.getTypeParser,
}

interface HostPool {
  readonly pool: pg.Pool
  /** Its connections. */
  readonly clients: WeakSet<pg.ClientBase>
  readonly inUse: Set<pg.ClientBase>
  readonly sockets: OpenSockets
  /** Rejects the callers that wait for a connection: the driver forgets them when its pool ends. */
  readonly waiting: Set<(reason: Error) => void>
}

/** A host whose server takes writes. */
interface Primary extends Server {
  readonly host: Host
}

/**
 * Uses one host at a time: of those that take writes the one on the highest timeline. All hosts are probed before the first
 * connection, when the one in use refuses connections or writes, and at `look`. A server on a lower timeline than one that was
 * seen is never used, even when no other answers. Nothing waits for a primary to appear: callers are told to try again.
 */
export class PrimaryPool {
  readonly #options: Required<PoolOptions>
  readonly #address: PostgresAddress
  #current: HostPool
  #host: Host
  /** Whether there is but one host, or a search has found one. */
  #isFound: boolean
  /** The highest that was seen of a server that takes writes. */
  #timeline = 0
  /** Those that take writes beside the one in use, as of the last search. */
  #others: readonly Primary[] = []
  /** Why the last search used none although one takes writes. */
  #refusal: NotWritable | undefined
  #nextLookMs = 0
  readonly #settings = new WeakMap<pg.ClientBase, string>()
  #search: Promise<void> | undefined
  /** Those of the search. */
  readonly #probes = new Set<OpenSockets>()
  /** Pools that were left, some of whose connections may be in use. */
  readonly #ending = new Set<Promise<void>>()
  #isClosed = false

  constructor(options: PoolOptions) {
    this.#options = { ...DEFAULTS, ...options }
    this.#address = parseAddress(options.url)
    const [first] = this.#address.hosts
    if (!first) throw new Error('a PostgreSQL address must name a host')
    this.#host = first
    this.#isFound = this.#address.hosts.length === 1
    this.#current = this.#createPool(first)
  }

  get connectTimeoutMs(): number {
    return this.#options.connectTimeoutMs
  }

  /** Longest wait for the answer to a statement, from when its turn comes, in ms. */
  get answerTimeoutMs(): number {
    return this.#options.statementTimeoutMs + ANSWER_SLACK_MS
  }

  /**
   * A connection to the primary; the caller releases it, with the error if it must not be used again.
   * @throws StoreUnavailable whatever the server's reason to refuse it, for example a missing privilege.
   */
  async acquire(): Promise<pg.PoolClient> {
    try {
      return await this.#connect()
    } catch (error) {
      throw error instanceof pg.DatabaseError ? new StoreUnavailable(error) : error
    }
  }

  async #connect(): Promise<pg.PoolClient> {
    if (!this.#isFound) await this.#findPrimary()
    for (;;) {
      const current = this.#current
      if (current.pool.waitingCount >= this.#options.poolSize * MAX_WAITING_PER_CONNECTION) {
        throw new PoolExhausted()
      }
      try {
        return await connect(current, this.#options.poolSize)
      } catch (error) {
        if (this.#current === current && this.#mayHaveMoved(error)) await this.#findPrimary()
        if (this.#current === current) throw this.#refusal ?? error
      }
    }
  }

  /** SQL that each transaction on this connection must begin with; empty unless a pooler stands between it and the database. */
  settingsOf(client: pg.ClientBase): string {
    return this.#settings.get(client) ?? ''
  }

  /**
   * Tells the pool of a failure, so that it looks for another primary if that may be the reason, and abandons all connections
   * when one of them, `client`, got no answer: whatever forgets one, a firewall for example, forgets all that are as old, and
   * each would keep its callers waiting in turn. Those who wait for one get a new one. Never throws.
   */
  report(error: unknown, client?: pg.ClientBase): void {
    if (client && isUnanswered(error) && this.#current.clients.has(client)) this.#connectTo(this.#host)
    if (this.#mayHaveMoved(error)) void this.#findPrimary()
  }

  /** Looks, now and then, for a server that takes writes beside the one in use; not waited for. */
  look(): void {
    if (this.#address.hosts.length === 1 || this.#isClosed || performance.now() < this.#nextLookMs) return
    this.#nextLookMs = performance.now() + LOOK_EVERY_MS
    void this.#findPrimary()
  }

  get connections(): Connections {
    const { totalCount, idleCount, waitingCount } = this.#current.pool
    return { inUse: totalCount - idleCount, idle: idleCount, waiting: waitingCount }
  }

  /** As of the last search. */
  get flaws(): readonly Flaw[] {
    return this.#others.map(({ host, timeline }) => ({
      what: `host ${host.name}:${host.port}`,
      state: `takes writes beside ${this.#host.name}:${this.#host.port}`,
      cause: `it is on timeline ${timeline}, the one in use on ${this.#timeline}: stop it, and make it a standby again (pg_rewind); what others write there will be lost`,
    }))
  }

  /** Fulfils when all connections in use have been released, and at most a second later, whatever the server does. */
  async close(): Promise<void> {
    this.#isClosed = true
    const probes = [...this.#probes].map((sockets) => sockets.closed())
    await Promise.all([...probes, this.#search, ...this.#ending, end(this.#current)])
  }

  #mayHaveMoved(error: unknown): boolean {
    return this.#address.hosts.length > 1 && !this.#isClosed && (isReadOnly(error) || isDisconnected(error))
  }

  /** Moves to the host that takes writes, if there is one. One search at a time, and a pause after a failed one. */
  #findPrimary(): Promise<void> {
    this.#search ??= this.#probeAll().finally(() => {
      this.#search = undefined
    })
    return this.#search
  }

  async #probeAll(): Promise<void> {
    const found = await this.#primaries()
    this.#timeline = Math.max(this.#timeline, ...found.map(({ timeline }) => timeline))
    const newest = found.filter(({ timeline }) => timeline === this.#timeline)
    const used = newest.find(({ host }) => host === this.#host) ?? newest[0]
    this.#others = found.filter(({ startedAt }) => startedAt !== used?.startedAt)
    this.#refusal = !used && found[0] ? leftBehind(found[0], this.#timeline) : undefined
    if (used === undefined) {
      await sleep(PROBE_PAUSE_MS)
    } else {
      this.#isFound = true
      if (used.host !== this.#host) this.#connectTo(used.host)
    }
  }

  /** Those that take writes, in the order of the address. A silent host is waited for: it may be the newest. */
  async #primaries(): Promise<Primary[]> {
    const probes = await Promise.allSettled(this.#address.hosts.map((host) => this.#probe(host)))
    return probes.flatMap((probe) => (probe.status === 'fulfilled' && probe.value.takesWrites ? [probe.value] : []))
  }

  /** Switches to a new pool, none of whose connections existed before. */
  #connectTo(host: Host): void {
    if (this.#isClosed) return
    const former = this.#current
    this.#host = host
    this.#current = this.#createPool(host)
    const ended = end(former).finally(() => this.#ending.delete(ended))
    this.#ending.add(ended)
  }

  async #probe(host: Host): Promise<Primary> {
    const sockets = new OpenSockets()
    this.#probes.add(sockets)
    const client = new pg.Client(this.#clientConfig(host, sockets))
    client.on('error', () => undefined)
    try {
      await client.connect()
      return { host, ...(await describe(client)) }
    } finally {
      void client.end()
      void sockets.closed().then(() => this.#probes.delete(sockets))
    }
  }

  #createPool(host: Host): HostPool {
    const sockets = new OpenSockets()
    const config: pg.PoolConfig = {
      ...this.#clientConfig(host, sockets),
      max: this.#options.poolSize,
      idleTimeoutMillis: KEEP_IDLE_MS,
      onConnect: (client) => this.#prepare(client),
    }
    const pool = new pg.Pool(config)
    const clients = new WeakSet<pg.ClientBase>()
    const inUse = new Set<pg.ClientBase>()
    pool.on('acquire', (client) => inUse.add(client))
    pool.on('release', (_, client) => inUse.delete(client))
    // A connection that breaks leaves the pool by itself; whoever was using it learns of it from the statement.
    pool.on('error', () => undefined)
    pool.on('connect', (client) => {
      clients.add(client)
      client.on('error', () => undefined)
    })
    return { pool, clients, inUse, sockets, waiting: new Set() }
  }

  /** What must hold on every connection before it is used. */
  async #prepare(client: pg.ClientBase): Promise<void> {
    const server = await describe(client)
    if (!server.takesWrites) throw new NotWritable('the database takes no writes: it is a standby or read-only')
    if (server.timeline < this.#timeline) throw leftBehind(server, this.#timeline)
    this.#timeline = server.timeline
    this.#settings.set(client, await prepareSession(client, this.#options))
  }

  #clientConfig(host: Host, sockets: OpenSockets): pg.ClientConfig {
    return {
      connectionString: this.#address.urlOf(host),
      application_name: 'survey-auth', // in pg_stat_activity
      connectionTimeoutMillis: this.#options.connectTimeoutMs,
      query_timeout: this.answerTimeoutMs,
      keepAlive: true,
      keepAliveInitialDelayMillis: KEEPALIVE_AFTER_MS,
      pipeline: true,
      stream: () => sockets.create(),
      types,
    }
  }
}

/** When the server has no connection to spare, those that are there are waited for. */
async function connect(from: HostPool, poolSize: number): Promise<pg.PoolClient> {
  try {
    return await take(from)
  } catch (error) {
    const { pool, inUse } = from
    const there = inUse.size + pool.idleCount
    if (!isServerFull(error) || there === 0) throw error
    pool.options.max = there
    setTimeout(() => {
      pool.options.max = poolSize
    }, SHARE_FOR_MS).unref()
    return connect(from, poolSize) // when that time is over before one is free, it is another that was not to be had
  }
}

/** @throws PoolExhausted when all connections stay in use. The driver has the same error for one that could not be made in time. */
function take({ pool, inUse, waiting }: HostPool): Promise<pg.PoolClient> {
  return new Promise((resolve, reject) => {
    waiting.add(reject)
    pool.connect().then(
      (client) => {
        if (waiting.delete(reject)) resolve(client)
        else client.release()
      },
      (error: unknown) => {
        waiting.delete(reject)
        reject(isWaitOver(error) && inUse.size === pool.options.max ? new PoolExhausted() : error)
      },
    )
  })
}

/**
 * Rejects those who wait for a connection. The driver's own promise is fulfilled before the sockets are closed, or waits for a
 * server that does not close them.
 */
async function end({ pool, inUse, sockets, waiting }: HostPool): Promise<void> {
  void pool.end()
  for (const reject of waiting) reject(new Error('the connections were given up'))
  waiting.clear()
  while (inUse.size > 0) await sleep(LET_GO_PAUSE_MS)
  await sockets.closed()
}

function leftBehind({ timeline }: Server, newest: number): NotWritable {
  return new NotWritable(
    `the server takes writes on timeline ${timeline}, which a promotion to ${newest} has left behind: stop it, and let the other answer; if that one is gone for good, restart this process`,
  )
}
