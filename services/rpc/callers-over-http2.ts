// Connections over HTTP/2, whose callers are asked now and then whether they are there. Node does not see each that is reset
// over TLS while something is under way: it has stopped to read by then, and would keep session and socket for ever.
import type { Http2Server, ServerHttp2Session } from 'node:http2'
import type { Duplex } from 'node:stream'

const PING_EVERY_MS = 10_000
const PONG_WITHIN_MS = 5_000

export class CallersOverHttp2 {
  readonly #server: Http2Server
  /** Open ones; those that are no HTTP/2 after all have no session. */
  readonly #sessions = new Map<Duplex, ServerHttp2Session | undefined>()

  constructor(server: Http2Server) {
    this.#server = server
  }

  accept(connection: Duplex): void {
    let session: ServerHttp2Session | undefined
    const take = (made: ServerHttp2Session) => {
      session = made
    }
    this.#server.once('session', take)
    this.#server.emit('connection', connection) // makes it at once
    this.#server.off('session', take)
    this.#sessions.set(connection, session)
    const pings = setInterval(() => requirePong(connection, session), PING_EVERY_MS)
    connection.once('close', () => {
      clearInterval(pings)
      this.#sessions.delete(connection)
    })
  }

  /**
   * Fulfils when all are closed: each when its streams have ended, or when its caller is gone. Each hears that it is to be
   * closed (GOAWAY) when `isFree` of its session.
   */
  async close(isFree: (session: ServerHttp2Session) => Promise<unknown> = async () => undefined): Promise<void> {
    const closed = [...this.#sessions].map(async ([connection, session]) => {
      const isClosed = new Promise((resolve) => connection.once('close', resolve))
      if (session) {
        requirePong(connection, session) // before it is closed, when Node answers no more
        await Promise.race([isFree(session), isClosed])
        session.close()
      }
      await isClosed
    })
    await Promise.all(closed)
  }

  destroy(): void {
    for (const connection of this.#sessions.keys()) connection.destroy()
  }
}

/** Also of one whose session has ended, the connection has to. Of one that is being closed, Node takes every ping for lost. */
function requirePong(connection: Duplex, session: ServerHttp2Session | undefined): void {
  if (!session || (session.closed && !session.destroyed)) return
  const late = setTimeout(() => connection.destroy(), PONG_WITHIN_MS).unref()
  if (session.destroyed) return
  session.ping((error) => {
    if (!error) clearTimeout(late)
  })
}
