// Connections over HTTP/2, pinged now and then to find out whether their callers are still there. Node misses some that are
// reset over TLS while something is in progress: it has stopped reading by then, and would keep session and socket forever.
import type { Http2Server, ServerHttp2Session } from 'node:http2'
import type { Duplex } from 'node:stream'

const PING_EVERY_MS = 10_000
const PONG_WITHIN_MS = 5_000

export class CallersOverHttp2 {
  readonly #server: Http2Server
  /** Open connections; those that turn out not to speak HTTP/2 have no session. */
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
    this.#server.emit('connection', connection) // creates the session synchronously
    this.#server.off('session', take)
    this.#sessions.set(connection, session)
    const pings = setInterval(() => requirePong(connection, session), PING_EVERY_MS)
    connection.once('close', () => {
      clearInterval(pings)
      this.#sessions.delete(connection)
    })
  }

  /**
   * Fulfils when all connections are closed. Each closes when its streams have ended, or when its caller is gone. Each is told
   * that it is about to be closed (GOAWAY) once `isFree` of its session fulfils.
   */
  async close(isFree: (session: ServerHttp2Session) => Promise<unknown> = async () => undefined): Promise<void> {
    const closed = [...this.#sessions].map(async ([connection, session]) => {
      const isClosed = new Promise((resolve) => connection.once('close', resolve))
      if (session) {
        requirePong(connection, session) // before the close: afterwards Node answers no pings
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

/**
 * Destroys the connection unless a pong comes in time. One whose session has already ended must end in that time too. A session
 * that is closing is not pinged: Node takes every ping on it for lost.
 */
function requirePong(connection: Duplex, session: ServerHttp2Session | undefined): void {
  if (!session || (session.closed && !session.destroyed)) return
  const late = setTimeout(() => connection.destroy(), PONG_WITHIN_MS).unref()
  if (session.destroyed) return
  session.ping((error) => {
    if (!error) clearTimeout(late)
  })
}
