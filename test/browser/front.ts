// A proxy in front of the service: over https with a certificate of its own, or over http on loopback. It may take from requests
// what some browsers, or the proxies before them, do not send.
import { once } from 'node:events'
import { createServer, type IncomingHttpHeaders, type RequestListener, request } from 'node:http'
import { createServer as createSecureServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import type { Authority } from '../rpc/certificates.js'

export interface FrontOptions {
  readonly isSecure: boolean
  /** As iOS before 16.4 and old WebViews: no `Sec-Fetch-*`. */
  readonly hidesFetchMetadata?: boolean
  /** As some privacy settings: `Origin: null`. */
  readonly hidesOrigin?: boolean
}

export interface Front {
  readonly url: string
  /** The address of the service, once it has one. */
  target: string
  close(): Promise<void>
}

export async function startFront(options: FrontOptions, authority: Authority): Promise<Front> {
  const forward: RequestListener = (incoming, response) => {
    const headers = withoutHidden(incoming.headers, options)
    const outgoing = request(front.target + incoming.url, { method: incoming.method ?? 'GET', headers })
    outgoing.on('response', (answer) => {
      response.writeHead(answer.statusCode ?? 502, answer.headers)
      answer.pipe(response)
    })
    outgoing.on('error', () => response.destroy())
    incoming.pipe(outgoing)
  }
  const server = options.isSecure ? createSecureServer(authority.issue('IP:127.0.0.1'), forward) : createServer(forward)
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const front: Front = {
    url: `${options.isSecure ? 'https' : 'http'}://127.0.0.1:${port}`,
    target: '',
    close: async () => {
      server.closeAllConnections()
      server.close()
      await once(server, 'close')
    },
  }
  return front
}

function withoutHidden(headers: IncomingHttpHeaders, { hidesFetchMetadata, hidesOrigin }: FrontOptions) {
  const kept = Object.entries(headers).filter(([name]) => !hidesFetchMetadata || !name.startsWith('sec-fetch-'))
  if (hidesOrigin && headers.origin !== undefined) kept.push(['origin', 'null'])
  return Object.fromEntries(kept)
}
