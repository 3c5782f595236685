// A proxy that can fall silent: connections stay open and new ones are accepted, but nothing passes.
import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net'

export class Relay {
  readonly #server: Server
  readonly #sockets = new Set<Socket>()
  #isSilent = false
  /** Connections so far. */
  accepted = 0

  private constructor(toPort: number) {
    this.#server = createServer((client) => {
      this.accepted += 1
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

  /** Holds back what either side sends. */
  silence(): void {
    this.#isSilent = true
    for (const socket of this.#sockets) socket.pause()
  }

  /** Silently passes nothing more over existing connections. New ones work as ever. */
  forgetConnections(): void {
    for (const socket of this.#sockets) socket.pause()
  }

  /** Passes on what was held back, and whatever follows. */
  resume(): void {
    this.#isSilent = false
    for (const socket of this.#sockets) socket.resume()
  }

  close(): void {
    this.#server.close()
    for (const socket of this.#sockets) socket.destroy()
  }

  /** When one side goes, the other is closed too, even while nothing passes. */
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
