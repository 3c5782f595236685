// The processes that serve the same, each over a connection of its own, and which of them a call goes to: in turn, to those that
// serve. One that is about to stop or does not serve, by its health check, gets no calls while another does; a call that could not
// be sent to one goes to another.
import type { Invoke } from './client.js'
import {
  MultiplexTransport,
  type MultiplexTransportOptions,
  type PeersOfTransport,
  RANK,
} from './multiplex-transport.js'

export class Peers implements PeersOfTransport {
  /** The one that was chosen last is the last. */
  readonly #all: MultiplexTransport[] = []

  readonly invoke = ((method, request, outgoing) => this.next().invoke(method, request, outgoing)) as Invoke

  add(options: MultiplexTransportOptions): MultiplexTransport {
    const added = new MultiplexTransport({ ...options, peers: this })
    this.#all.push(added)
    return added
  }

  /** Closes it: it should be idle. */
  remove(peer: MultiplexTransport): void {
    this.#all.splice(this.#all.indexOf(peer), 1)
    peer.close()
  }

  /** For the next call. While none is connected, all are tried. */
  next(): MultiplexTransport {
    const best = this.#all.reduce((one, other) => (other.rank < one.rank ? other : one))
    this.#all.push(...this.#all.splice(this.#all.indexOf(best), 1))
    if (!best.isConnected) for (const peer of this.#all) peer.open()
    return best
  }

  /** Calls that wait for a connection go to one that is connected. */
  onConnected(): void {
    for (const peer of [...this.#all]) peer.moveWaiting()
  }

  get areHopeless(): boolean {
    return this.#all.every(({ rank }) => rank === RANK.hopeless)
  }
}
