// The connections of the HTTP server, and how they end: no request that reached this process goes unanswered.
import type { IncomingMessage, Server, ServerResponse } from 'node:http'
import { Server as NetServer, type Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import type { GatewayLimits } from './limits.js'

/** While draining, how long a connected client may take to send its next, and last, request, in ms. */
const HEAR_WITHIN_MS = 1_000
const LOOK_EVERY_MS = 10
/** While draining, how long to go on accepting from the kernel's queue, in ms; under a flood it is never empty. */
const ACCEPT_WITHIN_MS = 1_000
/**
 * Requests a client may pipeline. node:http parses all requests it has read, thousands of a few bytes each, and each takes many
 * times its bytes of memory.
 */
const MOST_AHEAD = 64
/** How long a client may take to close its side once ours has ended, in ms. */
const LINGER_MS = 2_000
/** How much longer than it is told a client may be idle, in ms: what it sends at the last moment is on its way. */
const IDLE_MARGIN_MS = 1_000
/** Bytes of answers that wait to be read, on all connections together: clients that read nothing must not fill the memory. */
const MOST_UNREAD_BYTES = 256 * 1024 * 1024
/** They are counted whenever this many have been answered. */
const COUNT_EVERY_BYTES = 64 * 1024 * 1024

export class Connections {
  readonly #server: Server
  /** Open connections, each with its responses that are not sent yet, in the order of the requests; several when the client pipelines. */
  readonly #waiting = new Map<Socket, ServerResponse[]>()
  /** Of each connection, aborted when the client closes its side. */
  readonly #left = new WeakMap<Socket, AbortController>()
  readonly #onDropped: (() => void) | undefined
  /** Bytes answered since unread ones were counted. */
  #answeredBytes = 0
  #accepted = 0
  #isDraining = false

  /**
   * A connection is closed when for `keepAliveTimeoutMs` its client has sent nothing more, or read nothing of an answer.
   * `onDropped` is called for each that is closed because too much waits to be read.
   */
  constructor(server: Server, { keepAliveTimeoutMs }: GatewayLimits, onDropped?: () => void) {
    this.#server = server
    this.#onDropped = onDropped
    server.timeout = keepAliveTimeoutMs + IDLE_MARGIN_MS
    server.on('timeout', (socket) => {
      const isAnswering = this.#waiting.get(socket)?.length !== 0 && socket.writableLength === 0
      if (!isAnswering) socket.destroy()
    })
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
      })
    })
  }

  /** False for a request that is not to be answered: its client has pipelined more than MOST_AHEAD, and is cut off. */
  began({ socket }: IncomingMessage, response: ServerResponse): boolean {
    const waiting = this.#waiting.get(socket) ?? []
    if (waiting.length === MOST_AHEAD) {
      socket.destroy()
      return false
    }
    waiting.push(response)
    response.on('finish', () => {
      if (waiting[0] === response) waiting.shift()
    })
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

  /**
   * Called when an answer of `bytes` has been written. Closes connections until no more than MOST_UNREAD_BYTES wait to be read,
   * the oldest first.
   */
  answered(bytes: number): void {
    this.#answeredBytes += bytes
    if (this.#answeredBytes < COUNT_EVERY_BYTES) return
    this.#answeredBytes = 0
    const unread = [...this.#waiting.keys()].filter(({ writableLength }) => writableLength > 0)
    let total = unread.reduce((sum, { writableLength }) => sum + writableLength, 0)
    for (const socket of unread) {
      if (total <= MOST_UNREAD_BYTES) return
      total -= socket.writableLength
      socket.destroy()
      this.#onDropped?.()
    }
  }

  /** The answer to the last request of a connection, unless all have been sent. */
  lastWaiting(socket: Duplex): ServerResponse | undefined {
    return this.#waiting.get(socket as Socket)?.at(-1) // one that is not ours has none
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

  /** Closing the port resets the clients that wait in the kernel's queue. Each turn of the event loop accepts one of them. */
  async #allAccepted(): Promise<void> {
    const until = performance.now() + ACCEPT_WITHIN_MS
    let before: number
    do {
      before = this.#accepted
      await endOfTurn()
      await endOfTurn()
    } while (this.#accepted > before && performance.now() < until)
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
      if (performance.now() < until) continue
      await endOfTurn() // what arrived until then while this process was busy has been read
      for (const [socket, { length }] of this.#waiting) {
        if (length === 0 && socket.writableLength === 0 && !socket.writableEnded) socket.destroy()
      }
    }
  }
}

/**
 * Ends our side when all is written, and closes when the client has closed its side, or did not within LINGER_MS. What it sends
 * meanwhile is read and dropped: to close a connection with unread bytes resets it, which may cost its client answers.
 */
export function closeInStages(socket: Duplex): void {
  if (socket.writableEnded) return
  socket.removeAllListeners('data') // no more requests are taken from it
  socket.on('data', () => undefined)
  socket.resume()
  socket.end(() => setTimeout(() => socket.destroy(), LINGER_MS).unref())
}

/** The connection ends with the last of these answers, not with one before it. */
function closeAfterLast(waiting: readonly ServerResponse[]): void {
  for (const response of waiting) response.shouldKeepAlive = response !== waiting.at(-1)
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
