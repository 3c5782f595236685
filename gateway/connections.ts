// The connections of the HTTP server, and how they end: no request that reached this process goes unanswered.
import type { IncomingMessage, Server, ServerResponse } from 'node:http'
import { Server as NetServer, type Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import type { GatewayLimits } from './limits.js'

/** While draining, how long a connected client may take to send its next, and last, request, in ms. */
const HEAR_WITHIN_MS = 1_000
const LOOK_EVERY_MS = 10
/**
 * How often idle connections are looked for, in ms. A timer set after each answer, as node:http does it, costs a
 * twenty-fifth of a request.
 */
const LOOK_FOR_IDLE_EVERY_MS = 1_000
/** While draining, how long to go on accepting from the kernel's queue, in ms; under a flood it is never empty. */
const ACCEPT_WITHIN_MS = 1_000
/** A turn of the event loop with nothing to do takes less than this, in ms. */
const IDLE_TURN_MS = 0.03
/**
 * Requests a client may pipeline. node:http parses all requests it has read, thousands of a few bytes each, before it does
 * anything for any other client.
 */
const MOST_AHEAD = 64
/** What is read beyond them, or once our side has ended, and dropped: see closeInStages. */
const MOST_DROPPED_BYTES = 128 * 1024
/** How long a client may take to close its side once ours has ended, in ms. */
const LINGER_MS = 2_000
/**
 * Bytes of answers that wait to be read, on all connections together. A client that reads a little now and then may leave
 * them waiting for hours.
 */
const MOST_UNREAD_BYTES = 256 * 1024 * 1024
/** They are counted once a second, and whenever this many have been answered. */
const COUNT_EVERY_BYTES = 64 * 1024 * 1024

export class Connections {
  readonly #server: Server
  /** Open connections, each with its responses that are not sent yet, in the order of the requests; several when the client pipelines. */
  readonly #waiting = new Map<Socket, ServerResponse[]>()
  /** Bytes read from each connection by the time it had MOST_AHEAD pending. It stays full: no more requests are taken from it. */
  readonly #fullAt = new WeakMap<Socket, number>()
  /** Of each connection, aborted when the client closes its side. */
  readonly #left = new WeakMap<Socket, AbortController>()
  /** Connections that had nothing in flight at the last look: since when, and how much had been read from each. */
  #idle = new Map<Socket, { readonly sinceMs: number; readonly bytesRead: number }>()
  /** Connections with bytes that wait to be read, first those that have had some for longest. */
  readonly #unread = new Set<Socket>()
  readonly #onDropped: (() => void) | undefined
  /** Bytes answered since unread ones were counted. */
  #answeredBytes = 0
  #accepted = 0
  #isDraining = false

  /**
   * A connection that has had an answer is closed a second or two after it has been idle for `keepAliveTimeoutMs`; one whose
   * client reads nothing of an answer for `requestTimeoutMs` is closed like one that sends nothing of a request. `onDropped`
   * is called for each that is closed because too much waits to be read.
   */
  constructor(server: Server, { keepAliveTimeoutMs, requestTimeoutMs }: GatewayLimits, onDropped?: () => void) {
    this.#server = server
    this.#onDropped = onDropped
    server.on('connection', (socket) => {
      this.#accepted += 1
      this.#waiting.set(socket, [])
      socket.destroySoon = () => closeInStages(socket) // node:http calls it after the last answer
      const left = new AbortController()
      this.#left.set(socket, left)
      socket.once('end', () => left.abort())
      socket.once('close', () => {
        left.abort()
        this.#waiting.delete(socket)
        this.#unread.delete(socket)
      })
    })
    const looking = setInterval(() => {
      for (const socket of this.#waiting.keys()) cutOffUnlessRead(socket, requestTimeoutMs)
      this.#boundUnread()
      void this.#closeIdle(keepAliveTimeoutMs)
    }, LOOK_FOR_IDLE_EVERY_MS).unref()
    server.once('close', () => clearInterval(looking))
  }

  /** False for a request beyond MOST_AHEAD, which is not answered: the connection closes after the last answer before it. */
  began({ socket }: IncomingMessage, response: ServerResponse): boolean {
    const waiting = this.#waiting.get(socket) ?? []
    const fullAt = this.#fullAt.get(socket)
    if (fullAt !== undefined) {
      const dropped = socket.bytesRead - fullAt
      // Not now: node:http still has bytes to parse, and resumes reading after each request.
      if (dropped > MOST_DROPPED_BYTES) process.nextTick(() => socket.pause())
      return false
    }
    response.on('finish', () => {
      if (waiting[0] === response) waiting.shift()
    })
    if (waiting.push(response) === MOST_AHEAD) {
      response.shouldKeepAlive = false
      this.#fullAt.set(socket, socket.bytesRead)
    }
    if (this.#isDraining) closeAfterLast(waiting)
    return true
  }

  /**
   * Fulfils when the kernel has taken the answer to the request before, and never if the connection closes instead; undefined
   * when nothing is before it. Requests of one connection are served one after the other, so that a client that does not read
   * has one answer waiting for it.
   */
  previousAnswered({ socket }: IncomingMessage): Promise<void> | undefined {
    const before = this.#waiting.get(socket)?.at(-2)
    if (!before) return undefined
    return new Promise((resolve) => {
      before.once('finish', () => {
        if (socket.writable) resolve()
      })
    })
  }

  /** Aborted when the client closes its side of the connection: it has left, or sends no more and waits for answers. */
  leftBy({ socket }: IncomingMessage): AbortSignal {
    return this.#left.get(socket)?.signal ?? AbortSignal.abort()
  }

  /** Called when an answer of `bytes` has been written. */
  answered(bytes: number): void {
    this.#answeredBytes += bytes
    if (this.#answeredBytes > COUNT_EVERY_BYTES) this.#boundUnread()
  }

  /** Whether a request is arriving that has no answer yet. */
  isReading(socket: Duplex): boolean {
    const waiting = this.#waiting.get(socket as Socket) ?? []
    return !waiting.every(isCertain)
  }

  /**
   * For a connection on which something other than a request arrived. Returns the last answer that will be complete, or is, because
   * its request had arrived in full; requests behind it are forgotten.
   */
  lastCertain(socket: Duplex): ServerResponse | undefined {
    const waiting = this.#waiting.get(socket as Socket) ?? [] // one that is not ours has none
    waiting.splice(1 + waiting.findLastIndex(isCertain))
    return waiting.at(-1)
  }

  /**
   * Accepts no more connections and closes each after its next answer; a client that has not sent the headers of a request
   * within a second is not waited for. Fulfils when all are closed; those still open after `timeoutMs` are cut.
   */
  async drain(timeoutMs: number): Promise<void> {
    await this.#allAccepted()
    this.#stopListening() // at once: a client that connects in between is reset
    this.#isDraining = true
    for (const waiting of this.#waiting.values()) closeAfterLast(waiting)
    const cut = setTimeout(() => this.#server.closeAllConnections(), timeoutMs)
    await this.#allClosed()
    clearTimeout(cut)
    this.#server.close() // it is closed already: this stops looking for late requests
  }

  /**
   * Closing the port resets the clients that wait in the kernel's queue. Each turn of the event loop accepts one of them, so this
   * waits for a turn that accepted none, and so short that hardly another can have come meanwhile.
   */
  async #allAccepted(): Promise<void> {
    const until = performance.now() + ACCEPT_WITHIN_MS
    await endOfTurn()
    while (performance.now() < until) {
      const accepted = this.#accepted
      const startedAt = performance.now()
      await endOfTurn()
      if (this.#accepted === accepted && performance.now() - startedAt < IDLE_TURN_MS) return
    }
  }

  /** Closes connections until no more than MOST_UNREAD_BYTES wait to be read, first those on which bytes have waited for longest. */
  #boundUnread(): void {
    this.#answeredBytes = 0
    let bytes = 0
    for (const socket of this.#waiting.keys()) {
      bytes += socket.writableLength
      if (socket.writableLength > 0) this.#unread.add(socket)
      else this.#unread.delete(socket)
    }
    for (const socket of this.#unread) {
      if (bytes <= MOST_UNREAD_BYTES) return
      bytes -= socket.writableLength
      socket.destroy()
      this.#onDropped?.()
    }
  }

  /** A request that is incomplete, or that never came, is left to the timeouts of node:http. */
  async #closeIdle(timeoutMs: number): Promise<void> {
    const now = await allReadUntilNow()
    const before = this.#idle
    this.#idle = new Map()
    for (const socket of this.#withNothingUnderWay()) {
      const { bytesRead, bytesWritten } = socket
      if (bytesWritten === 0) continue
      const known = before.get(socket)
      const sinceMs = known?.bytesRead === bytesRead ? known.sinceMs : now
      if (now - sinceMs >= timeoutMs) socket.destroy()
      else this.#idle.set(socket, { sinceMs, bytesRead })
    }
  }

  /**
   * As node:net does it: node:http would also cut off connections with a request in flight, and stop looking for requests that
   * are late.
   */
  #stopListening(): void {
    NetServer.prototype.close.call(this.#server)
  }

  /** Waits until all are closed: those idle after a second by us, each of the others with its answer. */
  async #allClosed(): Promise<void> {
    const until = performance.now() + HEAR_WITHIN_MS
    while (this.#waiting.size > 0) {
      await sleep(LOOK_EVERY_MS)
      if ((await allReadUntilNow()) < until) continue
      for (const socket of this.#withNothingUnderWay()) socket.destroy()
    }
  }

  /** Connections whose requests have all been answered, whose answers have been sent, and which are not being closed. */
  *#withNothingUnderWay(): Generator<Socket> {
    for (const [socket, { length }] of this.#waiting) {
      if (length === 0 && socket.writableLength === 0 && !socket.writableEnded) yield socket
    }
  }
}

/**
 * Ends our side when all is written, and closes when the client has closed its side, or did not within LINGER_MS. What it sends
 * meanwhile is read and dropped: to close a connection with unread bytes resets it, which may cost its client answers.
 */
export function closeInStages(socket: Duplex): void {
  if (socket.writableEnded) return
  let dropped = 0
  socket.removeAllListeners('data') // no more requests are taken from it
  socket.on('data', ({ length }: Buffer) => {
    dropped += length
    if (dropped > MOST_DROPPED_BYTES) socket.pause()
  })
  socket.resume()
  socket.end(() => setTimeout(() => socket.destroy(), LINGER_MS).unref())
}

/** Whether an answer will be complete, or is, whatever arrives from now on. */
function isCertain({ req, writableEnded }: ServerResponse): boolean {
  return req.complete || writableEnded
}

/** node:net, which knows how much of an answer has been sent, closes the connection when no more of it is for `timeoutMs`. */
function cutOffUnlessRead(socket: Socket, timeoutMs: number): void {
  const patienceMs = socket.writableLength > 0 ? timeoutMs : 0
  if ((socket.timeout ?? 0) !== patienceMs) socket.setTimeout(patienceMs)
}

/** The connection ends with the last of these answers, not with one before it. */
function closeAfterLast(waiting: readonly ServerResponse[]): void {
  for (const response of waiting) response.shouldKeepAlive = response !== waiting.at(-1)
}

/** Fulfils with the time of this call once all that had arrived by then has been read, also while this process was busy. */
async function allReadUntilNow(): Promise<number> {
  const now = performance.now()
  await endOfTurn()
  return now
}

let present: Promise<void> | undefined

/** Fulfils when all that arrives in this turn of the event loop has been read; for all who wait in one turn, at once. */
export function endOfTurn(): Promise<void> {
  present ??= new Promise((resolve) => {
    setImmediate(() => {
      present = undefined
      resolve()
    })
  })
  return present
}
