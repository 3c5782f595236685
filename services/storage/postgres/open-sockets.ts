import { Socket } from 'node:net'

const GOODBYE_MS = 1_000

/**
 * The open sockets of a pool. Its driver says goodbye and leaves closing to the server; one that does not answer leaves them
 * open, and an open socket keeps the process alive.
 */
export class OpenSockets {
  readonly #open = new Set<Socket>()

  create(): Socket {
    const socket = new Socket()
    this.#open.add(socket)
    socket.once('close', () => this.#open.delete(socket))
    return socket
  }

  /** Fulfils when all sockets that are open now, to which goodbye has just been said, are closed; after a second they are cut. */
  async closed(): Promise<void> {
    const open = [...this.#open]
    const cut = setTimeout(() => {
      for (const socket of open) socket.destroy()
    }, GOODBYE_MS)
    await Promise.all(open.map((socket) => new Promise<void>((resolve) => socket.once('close', () => resolve()))))
    clearTimeout(cut)
  }
}
