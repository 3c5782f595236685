// A way to a server that can fall silent: connections stay open and new ones are accepted, but nothing passes.
import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net'

export class Relay {
  readonly #server: Server
  readonly #sockets = new Set<Socket>()
  #isSilent = false

  private constructor(toPort: number) {
    this.#server = createServer((client) => {
      const upstream = connect(toPort, '127.0.0.1')
      this.#passOn(client, upstream)
      this.#passOn(upstream, client)
    })
  }

  /** To a port of this machine. */
  static async open(toPort: number): Promise<Relay> {
    const relay = new Relay(toPort)
    relay.#server.listen(0, '127.0.0.1')
    await once(relay.#server, 'listening')
    return relay
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port
  }

  /** Keeps back what comes from either side. */
  silence(): void {
    this.#isSilent = true
    for (const socket of this.#sockets) socket.pause()
  }

  /** Passes nothing more on for those who are connected, and says nothing of it. New connections are as good as ever. */
  forgetConnections(): void {
    for (const socket of this.#sockets) socket.pause()
  }

  /** Passes on what was kept back, and what comes. */
  resume(): void {
    this.#isSilent = false
    for (const socket of this.#sockets) socket.resume()
  }

  close(): void {
    this.#server.close()
    for (const socket of this.#sockets) socket.destroy()
  }

  /** A side that is gone takes the other with it, also while nothing passes. */
  #passOn(from: Socket, to: Socket): void {
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
