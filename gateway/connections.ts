// The connections of the HTTP server, and how they end such that no request that reached this process goes unanswered.
import type { IncomingMessage, Server, ServerResponse } from 'node:http'
import type { Duplex } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'

/** How long a client that has connected may take to ask, once the server is to stop, in ms. */
const HEAR_WITHIN_MS = 1_000
const LOOK_EVERY_MS = 10
/** Turns of the event loop to wait for a quiet one; a server with more to do than it can never has one. */
const MAX_TURNS = 100

export class Connections {
  readonly #server: Server
  /** Those that have not sent a request yet. */
  readonly #unheard = new Set<Duplex>()
  /** The last response each connection waits for. */
  readonly #inFlight = new Map<Duplex, ServerResponse>()
  #arrivals = 0
  #isDraining = false

  constructor(server: Server) {
    this.#server = server
    server.on('connection', (socket) => {
      this.#arrivals += 1
      this.#unheard.add(socket)
      socket.once('close', () => this.#unheard.delete(socket))
    })
  }

  began({ socket }: IncomingMessage, response: ServerResponse): void {
    this.#arrivals += 1
    this.#unheard.delete(socket)
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
   * Accepts no more connections, answers what arrived before that, and closes each connection after its answer. Fulfils
   * when all are closed; those still open after `timeoutMs` are cut.
   */
  async drain(timeoutMs: number): Promise<void> {
    this.#isDraining = true
    for (const response of this.#inFlight.values()) response.shouldKeepAlive = false
    const cut = setTimeout(() => this.#server.closeAllConnections(), timeoutMs)
    await this.#quietTurn()
    const closed = new Promise<void>((resolve) => {
      this.#server.close(() => resolve()) // and whoever was answered before and is idle
    })
    await this.#allHeard()
    await closed
    clearTimeout(cut)
  }

  /**
   * A turn of the event loop in which nobody connected and nobody asked: what the kernel held for us is read. Whoever is
   * still in its queue when the port is closed is reset.
   */
  async #quietTurn(): Promise<void> {
    await nextTurn()
    for (let turn = 0; turn < MAX_TURNS; turn++) {
      const arrivals = this.#arrivals
      await nextTurn()
      if (this.#arrivals === arrivals) return
    }
  }

  /** Whoever got a connection before the end may ask; a connection that is kept in store is closed without a request. */
  async #allHeard(): Promise<void> {
    const until = performance.now() + HEAR_WITHIN_MS
    while (this.#unheard.size > 0 && performance.now() < until) await sleep(LOOK_EVERY_MS)
    for (const socket of this.#unheard) socket.destroy()
  }
}

function nextTurn(): Promise<void> {
  return new Promise((resolve) => {
    setImmediate(resolve)
  })
}
