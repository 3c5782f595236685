// The connections of the HTTP server, and how they end: no request that reached this process goes unanswered.
import type { IncomingMessage, Server, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import type { GatewayLimits } from './limits.js'

/** How long a connected client may take to send its next, and last, request when the server is to stop, in ms. */
const HEAR_WITHIN_MS = 1_000
const LOOK_EVERY_MS = 10
/**
 * How often idle connections are looked for, in ms. A timer that is set after each answer, as node:http does, takes a
 * twenty-fifth of a request.
 */
const LOOK_FOR_IDLE_EVERY_MS = 1_000
/** How long connections are taken out of the kernel's queue; under a flood it is never empty. */
const ACCEPT_WITHIN_MS = 1_000
/** A turn of the event loop that had nothing to do takes less, in ms. */
const IDLE_TURN_MS = 0.03
/**
 * Requests a client may send ahead of their answers. node:http makes requests of all that it has read, thousands of a few bytes
 * each, before it does anything for anybody else.
 */
const MOST_AHEAD = 64
/** What is read beyond them, for nothing: a connection that is closed with bytes unread is reset, which may cost its client answers. */
const MOST_DROPPED_BYTES = 128 * 1024

export class Connections {
  readonly #server: Server
  /** The open ones, and the responses each waits for in the order of its requests; several when it pipelines. */
  readonly #waiting = new Map<Socket, ServerResponse[]>()
  /** Bytes that were read of each when it had sent as many requests as it may. */
  readonly #fullAt = new WeakMap<Socket, number>()
  /** Those that had nothing under way when they were last looked at: since when, and how much had been read of each. */
  #idle = new Map<Socket, { readonly sinceMs: number; readonly bytesRead: number }>()
  #accepted = 0
  #isDraining = false

  /**
   * One that has had an answer is closed when it has been idle for `keepAliveTimeoutMs`, a second or two later, and one whose
   * client takes nothing of an answer for `requestTimeoutMs`, as one that sends nothing of a request is.
   */
  constructor(server: Server, { keepAliveTimeoutMs, requestTimeoutMs }: GatewayLimits) {
    this.#server = server
    server.on('connection', (socket) => {
      this.#accepted += 1
      this.#waiting.set(socket, [])
      socket.once('close', () => this.#waiting.delete(socket))
    })
    const looking = setInterval(() => {
      for (const socket of this.#waiting.keys()) cutOffUnlessRead(socket, requestTimeoutMs)
      void this.#closeIdle(keepAliveTimeoutMs)
    }, LOOK_FOR_IDLE_EVERY_MS).unref()
    server.once('close', () => clearInterval(looking))
  }

  /** False for what comes too far ahead, which is not answered: the connection ends with the last answer before it. */
  began({ socket }: IncomingMessage, response: ServerResponse): boolean {
    const waiting = this.#waiting.get(socket) ?? []
    if (waiting.length === MOST_AHEAD) {
      const dropped = socket.bytesRead - (this.#fullAt.get(socket) ?? 0)
      // Not now: node:http, which has more of what it read to parse, reads on after each request.
      if (dropped > MOST_DROPPED_BYTES) process.nextTick(() => socket.pause())
      return false
    }
    if (waiting.push(response) === MOST_AHEAD) {
      response.shouldKeepAlive = false
      this.#fullAt.set(socket, socket.bytesRead)
    }
    if (this.#isDraining) closeAfterLast(waiting)
    return true
  }

  /**
   * To be called when an answer was written. One that was written early waits, as node:http has it do, for those before it. A
   * connection at its end stays full: no more is taken from it.
   */
  ended({ socket }: IncomingMessage): void {
    const waiting = this.#waiting.get(socket)
    if (waiting?.length === MOST_AHEAD) return
    while (waiting?.[0]?.writableEnded) waiting.shift()
  }

  /** Whether the connection waits for one answer only. */
  isAlone({ socket }: IncomingMessage): boolean {
    return this.#waiting.get(socket)?.length === 1
  }

  /**
   * To be called when what came is no request: returns the last response this connection waits for that will come, or has
   * come, whatever follows its request. Those behind it are waited for no more.
   */
  lastCertain(socket: Duplex): ServerResponse | undefined {
    const waiting = this.#waiting.get(socket as Socket) ?? [] // another one has none
    waiting.splice(1 + waiting.findLastIndex(({ req, writableEnded }) => req.complete || writableEnded))
    return waiting.at(-1)
  }

  /**
   * Accepts no more connections and closes each after its next answer; who has not sent the headers of a request within a
   * second is not waited for. Fulfils when all are closed; those still open after `timeoutMs` are cut.
   */
  async drain(timeoutMs: number): Promise<void> {
    await this.#allAccepted()
    this.#stopListening() // at once: whoever connects meanwhile is reset
    this.#isDraining = true
    for (const waiting of this.#waiting.values()) closeAfterLast(waiting)
    const cut = setTimeout(() => this.#server.closeAllConnections(), timeoutMs)
    await this.#allClosed()
    clearTimeout(cut)
  }

  /**
   * A turn of the event loop in which nobody connected: the kernel's queue, of which each turn takes one, was empty when it
   * began, and is when it ends if it did nothing else. Whoever is in it when the port is closed is reset.
   */
  async #allAccepted(): Promise<void> {
    const until = performance.now() + ACCEPT_WITHIN_MS
    await nextTurn()
    while (performance.now() < until) {
      const accepted = this.#accepted
      const startedAt = performance.now()
      await nextTurn()
      if (this.#accepted === accepted && performance.now() - startedAt < IDLE_TURN_MS) return
    }
  }

  /** Of what has come of a request, or of one that never came, node:http looks after. */
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

  /** The server's own close() would cut those off whose request is under way. */
  #stopListening(): void {
    this.#server.closeIdleConnections = () => undefined
    this.#server.close()
  }

  /** Until all are closed: those that are idle after a second by us, each of the others with its answer. */
  async #allClosed(): Promise<void> {
    const until = performance.now() + HEAR_WITHIN_MS
    while (this.#waiting.size > 0) {
      await sleep(LOOK_EVERY_MS)
      if ((await allReadUntilNow()) < until) continue
      for (const socket of this.#withNothingUnderWay()) socket.destroy()
    }
  }

  /** Every request that came was answered, and the answers have gone out. */
  *#withNothingUnderWay(): Generator<Socket> {
    for (const [socket, { length }] of this.#waiting) if (length === 0 && socket.writableLength === 0) yield socket
  }
}

/** node:net, which knows how much of an answer has gone out, ends the connection when no more of it does for so long. */
function cutOffUnlessRead(socket: Socket, timeoutMs: number): void {
  const patienceMs = socket.writableLength > 0 ? timeoutMs : 0
  if ((socket.timeout ?? 0) !== patienceMs) socket.setTimeout(patienceMs)
}

/** The connection ends with the last of these answers, not with one before it. */
function closeAfterLast(waiting: readonly ServerResponse[]): void {
  for (const response of waiting) response.shouldKeepAlive = response !== waiting.at(-1)
}

/** Fulfils with the time of this call when all that had come by then was read, also while this process was busy. */
async function allReadUntilNow(): Promise<number> {
  const now = performance.now()
  await nextTurn()
  return now
}

function nextTurn(): Promise<void> {
  return new Promise((resolve) => {
    setImmediate(resolve)
  })
}
