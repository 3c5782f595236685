// Ports: taken before anything else is started, so that a port in use is noticed before a database is touched.

import type { Server as HttpServer } from 'node:http'
import { createServer, type Server } from 'node:net'
import { hostInUrl } from '../../services/rpc/address.js'
import { isOfSystem } from '../error-code.js'
import { CommandError, EXIT } from '../exit.js'

/** Connections the kernel may queue, if its own limit allows: with Node's 511, clients of a sudden crowd wait a second. */
const BACKLOG = 4_096

/** The setting of a port, and that of the address it is on. */
const HOST_OF = { PORT: 'HOST', ADMIN_PORT: 'ADMIN_HOST', RPC_LISTEN: 'RPC_LISTEN' } as const
export type PortVariable = keyof typeof HOST_OF

export interface HostAndPort {
  readonly host: string
  readonly port: number
}

/**
 * A port this process holds, so that its number is known before the server that needs it is made. A client that connects
 * before a server is put on the port is cut off.
 */
export interface HeldPort extends HostAndPort {
  readonly socket: Server
}

/**
 * Takes a port; 0 takes a free one.
 * @throws CommandError when it cannot be taken; `variable` names the setting of the port.
 */
export function holdPort(host: string, port: number, variable: PortVariable): Promise<HeldPort> {
  return new Promise((resolve, reject) => {
    const socket = createServer((connection) => connection.destroy())
    socket.once('error', (error: NodeJS.ErrnoException) => reject(cannotListen({ host, port }, variable, error)))
    socket.listen({ port, host, backlog: BACKLOG }, () => {
      const address = socket.address()
      if (address === null || typeof address === 'string') throw new Error('a TCP server has an address')
      resolve({ host, port: address.port, socket })
    })
  })
}

/** Frees a port that no server was put on; one that was closed with its server is free already. */
export function letGo(held: HeldPort): Promise<void> {
  return new Promise((resolve) => held.socket.close(() => resolve()))
}

/** Serves on a held port from now on. */
export function serveOn(held: HeldPort, server: HttpServer): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject)
    server.listen(held.socket, BACKLOG, () => {
      server.off('error', reject)
      resolve()
    })
  })
}

export function urlOf({ host, port }: HostAndPort): string {
  return `http://${hostInUrl(host)}:${port}`
}

/** The error for a port that cannot be taken; `variable` names the setting of the port. */
export function cannotListen({ host, port }: HostAndPort, variable: PortVariable, error: NodeJS.ErrnoException): Error {
  if (error.code === 'EADDRINUSE') {
    return new CommandError(
      `port ${port} on ${host} is in use`,
      EXIT.unavailable,
      `stop what listens there, or choose another port: ${variable}=${port + 1}`,
    )
  }
  if (error.code === 'EACCES') {
    return new CommandError(`may not listen on port ${port} of ${host}`, EXIT.unavailable, `choose another ${variable}`)
  }
  if (NO_ADDRESS_HERE.test(error.code ?? '')) {
    const text = `${HOST_OF[variable]} must be an address of this machine, and ${host} is none`
    return new CommandError(text, EXIT.configuration)
  }
  if (!isOfSystem(error)) return error
  return new CommandError(`cannot listen on port ${port} of ${host} (${error.message})`, EXIT.unavailable)
}

/** EAFNOSUPPORT: IPv6 on a machine without it. EINVAL: a link-local address, which means nothing without its interface. */
const NO_ADDRESS_HERE = /^(EADDRNOTAVAIL|ENOTFOUND|EAFNOSUPPORT|EINVAL)$/
