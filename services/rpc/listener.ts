// The sockets of the RPC doors. One address serves both: a connection that opens with HTTP/1.1 goes to the Connect door, one
// with HTTP/2 to the gRPC door, which passes on what is not gRPC. The first bytes tell which, over TLS too.
import { constants } from 'node:crypto'
import { chmodSync, lstatSync, renameSync, rmSync, unlinkSync } from 'node:fs'
import net from 'node:net'
import type { Duplex } from 'node:stream'
import tls from 'node:tls'
import type { Address } from './address.js'

export interface ListenerOptions {
  readonly address: Address
  /** PEM texts; needed for an address of kind `tls`. */
  readonly tls: TlsMaterial | undefined
  readonly onHttp2: (connection: Duplex) => void
  readonly onHttp1: (connection: Duplex) => void
  readonly maxConnections: number
  /** Called when a peer has been turned away; the peer itself is hardly told. */
  readonly onTurnedAway?: OnTurnedAway | undefined
}

/** `why`: TOO_MANY, or a code of OpenSSL or Node, such as `CERT_HAS_EXPIRED`. `from`: the peer's IP address, if known. */
export type OnTurnedAway = (why: string, from: string | undefined) => void

export interface TlsMaterial {
  readonly cert: string
  readonly key: string
  /** Certificates that sign those of the callers and servers we trust. */
  readonly ca: string
}

export interface Listener {
  /** As given; port 0 is replaced by the port that was bound. */
  readonly address: Address
  /** Uses new certificates for connections from now on; open ones stay. */
  reloadTls(material: TlsMaterial): void
  /** Stops accepting, and closes connections that have not said what they speak; others stay open. */
  stop(): void
}

export const TOO_MANY = 'TOO_MANY'
/** A connection that has not said what it speaks by then is closed. */
const HANDSHAKE_TIMEOUT_MS = 10_000
/** How long a peer may be silent after we have closed our side: an idle caller may not notice for seconds. */
const LINGER_MS = 250
const HTTP2_BEGINS = Buffer.from('PRI') // of its preface; not a method of HTTP/1.1 (RFC 9113 §3.4, §11)

export async function listen(options: ListenerOptions): Promise<Listener> {
  const { address } = options
  const isTls = address.kind === 'tls'
  const server = isTls ? createTlsServer(options) : net.createServer({ noDelay: true })
  server.maxConnections = options.maxConnections
  server.on('drop', (peer?: net.DropArgument) => options.onTurnedAway?.(TOO_MANY, peer?.remoteAddress))
  const waiting = new Map<unknown, net.Socket>() // for their handshake or their first bytes
  let isStopped = false
  server.on('connection', (socket: net.Socket) => {
    const peer = peerOf(socket)
    waiting.set(peer, socket)
    socket.once('close', () => waiting.delete(peer))
  })
  server.on(isTls ? 'secureConnection' : 'connection', (socket: net.Socket) => {
    socket.on('error', () => socket.destroy())
    socket.once('finish', () => socket.setTimeout(LINGER_MS, () => socket.destroy()))
    onFirstBytes(socket, (head) => {
      waiting.delete(peerOf(socket))
      if (isStopped) socket.destroy()
      else if (head.equals(HTTP2_BEGINS)) options.onHttp2(socket)
      else options.onHttp1(socket)
    })
  })
  if (address.kind === 'unix') for (const path of [address.path, madeAt(address.path)]) await removeStaleSocket(path)
  await bind(server, address)
  const own = address.kind === 'unix' ? lstatSync(address.path).ino : undefined
  return {
    address: boundAddress(server, address),
    reloadTls(material) {
      if (server instanceof tls.Server) server.setSecureContext(secureContext(material))
    },
    stop() {
      isStopped = true
      server.close()
      if (address.kind === 'unix') removeOwnSocket(address.path, own)
      for (const socket of waiting.values()) socket.destroy()
    },
  }
}

/** A key that is the same for a socket and for the TLS socket over it, which Node does not link. */
function peerOf(socket: net.Socket): unknown {
  const { localAddress, remoteAddress, remotePort } = socket
  return remotePort === undefined ? socket : `${localAddress} ${remoteAddress} ${remotePort}`
}

function bind(server: net.Server, address: Address): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject)
    const ready = () => {
      server.removeListener('error', reject)
      resolve()
    }
    if (address.kind !== 'unix') {
      server.listen({ host: address.host, port: address.port }, ready)
      return
    }
    const umask = process.umask(0o177) // the socket is created 0600
    try {
      // Under another name: Node removes what has that name when the server is closed, whosever it is by then.
      const made = madeAt(address.path)
      server.listen(made, () => {
        chmodSync(made, 0o600)
        renameSync(made, address.path)
        ready()
      })
    } finally {
      process.umask(umask)
    }
  })
}

function boundAddress(server: net.Server, address: Address): Address {
  const bound = server.address()
  return address.kind === 'unix' || bound === null || typeof bound === 'string'
    ? address
    : { ...address, port: bound.port }
}

function createTlsServer(options: ListenerOptions): tls.Server {
  if (!options.tls) throw new Error('a TLS address needs certificates')
  const server = tls.createServer({
    ...secureContext(options.tls),
    requestCert: true,
    rejectUnauthorized: true,
    ALPNProtocols: ['h2', 'http/1.1'],
    handshakeTimeout: HANDSHAKE_TIMEOUT_MS,
    noDelay: true,
  })
  server.on('tlsClientError', (error: NodeJS.ErrnoException, socket) => {
    const why = socket.authorizationError ?? error.code
    if (why && String(why) !== 'ECONNRESET') options.onTurnedAway?.(String(why), socket.remoteAddress)
    socket.destroy() // after a timeout Node leaves it open
  })
  return server
}

/** Without session tickets: one would stand in for the caller's certificate, even when that has expired. */
function secureContext({ cert, key, ca }: TlsMaterial): tls.SecureContextOptions {
  return { cert, key, ca, minVersion: 'TLSv1.3', secureOptions: constants.SSL_OP_NO_TICKET }
}

function onFirstBytes(socket: net.Socket, then: (head: Buffer) => void): void {
  socket.setTimeout(HANDSHAKE_TIMEOUT_MS, () => socket.destroy())
  const read = () => {
    const head: Buffer | null = socket.read(HTTP2_BEGINS.length) // null until they are there
    if (head === null) return
    socket.off('readable', read)
    socket.setTimeout(0)
    socket.removeAllListeners('timeout')
    socket.unshift(head)
    then(head)
  }
  socket.on('readable', read)
}

/** Not longer than the path: it has its last character replaced. */
function madeAt(path: string): string {
  return `${path.slice(0, -1)}${path.endsWith('~') ? '-' : '~'}`
}

/** Another process may have put its own there, when this one's had been deleted. */
function removeOwnSocket(path: string, own: number | undefined): void {
  if (lstatSync(path, { throwIfNoEntry: false })?.ino === own) rmSync(path)
}

/**
 * A socket file that nobody answers on is left over from a crash; one that answers is in use, which is an error. What is no
 * socket is never removed.
 */
async function removeStaleSocket(path: string): Promise<void> {
  requireSocketAt(path)
  const state = await stateOfSocket(path)
  if (state === 'in use')
    throw Object.assign(new Error(`${path} is in use by a running process`), { code: 'EADDRINUSE' })
  if (state === 'forbidden')
    throw Object.assign(new Error(`${path} is another user's; delete it if nobody listens there`), { code: 'EACCES' })
  if (state === 'stale') unlinkSync(path)
}

/** Nothing may be there either. @throws Error with the code ENOTSOCK */
export function requireSocketAt(path: string): void {
  const there = lstatSync(path, { throwIfNoEntry: false })
  if (there && !there.isSocket()) throw Object.assign(new Error(`${path} is not a socket`), { code: 'ENOTSOCK' })
}

/** Found out by connecting to the file. `forbidden`: this user may not connect to it; `none`: there is no file. */
export function stateOfSocket(path: string): Promise<'in use' | 'stale' | 'forbidden' | 'none'> {
  return new Promise((resolve) => {
    const probe = net.connect(path)
    probe.once('connect', () => {
      probe.destroy()
      resolve('in use')
    })
    probe.once('error', ({ code }: NodeJS.ErrnoException) =>
      resolve(code === 'ECONNREFUSED' ? 'stale' : code === 'EACCES' ? 'forbidden' : 'none'),
    )
  })
}
