// Stands between a store and PostgreSQL and cuts the connection where a test says: before BEGIN, at a statement of the
// transaction, before COMMIT reaches the server, or after the server has committed and before the store hears of it.
import { once } from 'node:events'
import { connect, createServer, type Socket } from 'node:net'

export type Cut =
  | { readonly at: 'BEGIN' | 'before COMMIT' | 'after COMMIT' }
  /** The nth statement since BEGIN, from 1 on. */
  | { readonly at: 'statement'; readonly nth: number }

export interface CuttingProxy {
  /** The database's address through the proxy. */
  readonly url: string
  /** Cuts every transaction there from now on; undefined: none. */
  cutAt(cut: Cut | undefined): void
  /** How often it has cut since it was told to. */
  readonly cuts: number
  close(): Promise<void>
}

export async function startCuttingProxy(url: string): Promise<CuttingProxy> {
  const target = new URL(url)
  const sockets = new Set<Socket>()
  let cut: Cut | undefined
  let cuts = 0

  const server = createServer((client) => {
    const database = connect(Number(target.port), target.hostname)
    const end = () => {
      client.destroy()
      database.destroy()
    }
    for (const socket of [client, database]) {
      sockets.add(socket)
      socket.setNoDelay(true)
      socket.on('error', end)
      socket.on('close', () => {
        sockets.delete(socket)
        end()
      })
    }
    const cutHere = () => {
      cuts += 1
      end()
    }
    let statements = 0
    forward(client, database, new Frames({ hasStartup: true }), (frame) => {
      if (isQuery(frame, 'BEGIN')) statements = 0
      if (isBind(frame)) statements += 1
      const isHere =
        (cut?.at === 'BEGIN' && isQuery(frame, 'BEGIN')) ||
        (cut?.at === 'before COMMIT' && isQuery(frame, 'COMMIT')) ||
        (cut?.at === 'statement' && isBind(frame) && statements === cut.nth)
      if (isHere) cutHere()
      return !isHere
    })
    forward(database, client, new Frames({ hasStartup: false }), (frame) => {
      const isHere = cut?.at === 'after COMMIT' && isDone(frame, 'COMMIT')
      if (isHere) cutHere()
      return !isHere
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const address = server.address()
  const through = new URL(url)
  through.port = String(typeof address === 'object' && address !== null ? address.port : 0)
  return {
    url: through.href,
    cutAt(where) {
      cut = where
      cuts = 0
    },
    get cuts() {
      return cuts
    },
    async close() {
      server.close()
      for (const socket of sockets) socket.destroy()
      await once(server, 'close')
    },
  }
}

/** Passes messages on one by one as long as `mayPass` says so. */
function forward(from: Socket, to: Socket, frames: Frames, mayPass: (frame: Buffer) => boolean): void {
  from.on('data', (chunk: Buffer) => {
    for (const frame of frames.of(chunk)) {
      if (!mayPass(frame)) return
      to.write(frame)
    }
  })
}

/** Cuts the bytes of one direction into messages: a letter, four bytes of length, the rest. The first has no letter. */
class Frames {
  #rest = Buffer.alloc(0)
  #isStartup: boolean

  constructor({ hasStartup }: { readonly hasStartup: boolean }) {
    this.#isStartup = hasStartup
  }

  *of(chunk: Buffer): Generator<Buffer> {
    this.#rest = Buffer.concat([this.#rest, chunk])
    for (;;) {
      const letter = this.#isStartup ? 0 : 1
      if (this.#rest.length < letter + 4) return
      const length = letter + this.#rest.readInt32BE(letter)
      if (this.#rest.length < length) return
      const frame = this.#rest.subarray(0, length)
      this.#rest = this.#rest.subarray(length)
      this.#isStartup = false
      yield frame
    }
  }
}

/** A simple query that begins so. */
function isQuery(frame: Buffer, text: string): boolean {
  return frame[0] === 0x51 && frame.subarray(5).toString('latin1').startsWith(text)
}

/** The values of a prepared statement, which is about to be run. */
function isBind(frame: Buffer): boolean {
  return frame[0] === 0x42
}

/** The server's word that a command is done. */
function isDone(frame: Buffer, command: string): boolean {
  return frame[0] === 0x43 && frame.subarray(5).toString('latin1') === `${command}\0`
}
