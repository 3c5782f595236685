// The connections of the HTTP server, and how they end: no request that reached this process goes unanswered.
import type { IncomingMessage, Server, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'

/** How long a connected client may take to send its next, and last, request when the server is to stop, in ms. */
const HEAR_WITHIN_MS = 1_000
const LOOK_EVERY_MS = 10
/** How long connections are taken out of the kernel's queue; under a flood it is never empty. */
const ACCEPT_WITHIN_MS = 1_000

export class Connections {
  readonly #server: Server
  readonly #open = new Set<Socket>()
  /** The last response each connection waits for. */
  readonly #inFlight = new Map<Duplex, ServerResponse>()
  #accepted = 0
  #isDraining = false

  constructor(server: Server) {
    this.#server = server
    server.on('connection', (socket) => {
      this.#accepted += 1
      this.#open.add(socket)
      socket.once('close', () => this.#open.delete(socket))
    })
  }

  began({ socket }: IncomingMessage, response: ServerResponse): void {
    this.#inFlight.set(socket, response)
    if (this.#isDraining) response.shouldKeepAlive = false
  }

  ended({ socket }: IncomingMessage, response: ServerResponse): void {
    if (this.#inFlight.get(socket) === response) this.#inFlight.delete(socket)
  }

  /** The response this connection waits for. */
  unanswered(socket: Duplex): ServerResponse | undefined {
    return this.#inFlight.get(socket)
  }

  /**
   * Accepts no more connections and closes each after its next answer; who does not ask within a second is not waited
   * for. Fulfils when all are closed; those still open after `timeoutMs` are cut.
   */
  async drain(timeoutMs: number): Promise<void> {
    const cut = setTimeout(() => this.#server.closeAllConnections(), timeoutMs)
    await this.#allAccepted()
    this.#isDraining = true
    for (const response of this.#inFlight.values()) response.shouldKeepAlive = false
    const closed = this.#stopListening()
    await this.#allHeard(Math.min(HEAR_WITHIN_MS, timeoutMs))
    await closed
    clearTimeout(cut)
  }

  /**
   * A turn of the event loop in which nobody connected: the kernel's queue, of which each turn takes one, is empty.
   * Whoever is in it when the port is closed is reset.
   */
  async #allAccepted(): Promise<void> {
    const until = performance.now() + ACCEPT_WITHIN_MS
    await nextTurn()
    while (performance.now() < until) {
      const accepted = this.#accepted
      await nextTurn()
      if (this.#accepted === accepted) return
    }
  }

  /** Fulfils when the last connection is closed. The server's own close() would cut those off whose request is under way. */
  #stopListening(): Promise<void> {
    this.#server.closeIdleConnections = () => undefined
    const closed = new Promise<void>((resolve) => {
      this.#server.close(() => resolve())
    })
    Reflect.deleteProperty(this.#server, 'closeIdleConnections')
    return closed
  }

  async #allHeard(withinMs: number): Promise<void> {
    const until = performance.now() + withinMs
    const isIdle = (socket: Socket) => !this.#inFlight.has(socket)
    while ([...this.#open].some(isIdle) && performance.now() < until) await sleep(LOOK_EVERY_MS)
    this.#server.closeIdleConnections()
    for (const socket of this.#open) if (socket.bytesRead === 0) socket.destroy() // to node:http they are not idle
  }
}

function nextTurn(): Promise<void> {
  return new Promise((resolve) => {
    setImmediate(resolve)
  })
}
