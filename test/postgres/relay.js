// A proxy that can fall silent: connections stay open and new ones are accepted, but nothing passes.
// JavaScript, with its types in relay.d.ts, because scripts of test/long use it too.
import { once } from 'node:events'
import { connect, createServer } from 'node:net'

export class Relay {
  #server
  #sockets = new Set()
  #isSilent = false
  /** Connections so far. */
  accepted = 0

  constructor(toPort) {
    this.#server = createServer((client) => {
      this.accepted += 1
      const upstream = connect(toPort, '127.0.0.1')
      this.#passOn(client, upstream)
      this.#passOn(upstream, client)
    })
  }

  /** To a port of this machine. */
  static async open(toPort) {
    const relay = new Relay(toPort)
    relay.#server.listen(0, '127.0.0.1')
    await once(relay.#server, 'listening')
    return relay
  }

  get port() {
    return this.#server.address().port
  }

  /** Holds back what either side sends. */
  silence() {
    this.#isSilent = true
    for (const socket of this.#sockets) socket.pause()
  }

  /** Silently passes nothing more over existing connections. New ones work as ever. */
  forgetConnections() {
    for (const socket of this.#sockets) socket.pause()
  }

  /** Passes on what was held back, and whatever follows. */
  resume() {
    this.#isSilent = false
    for (const socket of this.#sockets) socket.resume()
  }

  close() {
    this.#server.close()
    for (const socket of this.#sockets) socket.destroy()
  }

  /** When one side goes, the other is closed too, even while nothing passes. */
  #passOn(from, to) {
    this.#sockets.add(from)
    from.on('data', (chunk) => to.write(chunk))
    from.on('end', () => to.end())
    from.on('error', () => to.destroy())
    from.on('close', () => {
      this.#sockets.delete(from)
      to.destroySoon()
    })
    if (this.#isSilent) from.pause()
  }
}
