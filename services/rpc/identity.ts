// Who is at the other end of a connection. The connection says it, never the message.
import type { ConnectError } from '@connectrpc/connect'
import { ErrorReason } from '../../gen/surveyauth/v1/error_pb.js'
import { CALLERS, type Caller } from './callers.js'
import { ServiceError, toConnectError } from './service-error.js'

/** The caller for each subject alternative name, as certificates print them (`DNS:gateway.example`, `URI:spiffe://…`). */
export type CallersByName = ReadonlyMap<string, Caller>

/** Reads `gateway=DNS:gw1.example,DNS:gw2.example;verifier=URI:spiffe://example/report`. @throws Error */
export function parseCallers(text: string): CallersByName {
  const byName = new Map<string, Caller>()
  for (const entry of text.split(';').filter((part) => part.trim() !== '')) {
    const [role = '', names = ''] = entry.split(/=(.*)/s).map((part) => part.trim())
    const caller = CALLERS.find((known) => known === role)
    if (!caller || caller === 'local') throw new Error(`${role} is not a role: use ${roles.join(', ')}`)
    for (const name of names.split(',').map((part) => part.trim())) {
      if (!/^(DNS|URI|email|IP Address):[!-~]+$/.test(name)) {
        throw new Error(`${role}: ${name || 'nothing'} is not a name like DNS:host or URI:spiffe://…`)
      }
      if (byName.has(name)) throw new Error(`${name} has two roles`)
      byName.set(name, caller)
    }
  }
  return byName
}

const roles = CALLERS.filter((caller) => caller !== 'local')

/** Who is at the other end, as the connection says it. */
export interface Peer {
  readonly caller: Caller
  /** The name in its certificate, such as `DNS:console.example`; `uid:1000` or `loopback` where the machine is the guard. */
  readonly callerName: string
}

/** Who a caller is, from the subject alternative names of its verified certificate; undefined for nobody, who is denied. */
export type Identify = (subjectAltName: string | undefined) => Peer | undefined

/** Behind a Unix socket or on plaintext loopback the machine is the guard. */
export function identifyLocal(address: 'unix' | 'loopback'): Identify {
  const callerName = address === 'unix' ? ownName() : address
  return () => ({ caller: 'local', callerName })
}

/** Who runs this process, and alone may open its sockets. */
export const ownName = () => `uid:${process.getuid?.() ?? 'unknown'}`

/** Over TLS: the role of the first name that has one. */
export function identifyByName(byName: CallersByName): Identify {
  return (subjectAltName) => {
    // Node quotes names that hold special characters; such a list cannot be split safely, and no honest one needs it.
    if (!subjectAltName || subjectAltName.includes('"')) return undefined
    for (const name of subjectAltName.split(', ')) {
      const caller = byName.get(name)
      if (caller) return { caller, callerName: name }
    }
    return undefined
  }
}

/** The caller, if it may call at all. `hasOrigin`: the call has an Origin header. @throws ConnectError CALLER_NOT_ALLOWED */
export function requireCaller(caller: Peer | undefined, hasOrigin: boolean): Peer {
  if (!caller) throw notAllowed('the certificate of the caller has no role on this server')
  // A web page, say in a browser on this machine: where the machine is the guard it would be `local`, if only its host name
  // resolved to this address for a moment. Browsers send the header with every POST; none of our callers is a browser.
  if (hasOrigin) throw notAllowed('calls with an Origin header are refused: web pages may not call')
  return caller
}

function notAllowed(message: string): ConnectError {
  return toConnectError(new ServiceError(ErrorReason.CALLER_NOT_ALLOWED, message))
}
