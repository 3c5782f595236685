// A connection to another process: how grpc-js makes it, and how it is asked whether the process serves.
import { isIP } from 'node:net'
import { checkServerIdentity } from 'node:tls'
import * as grpc from '@grpc/grpc-js'
import { type Address, hostInUrl } from './address.js'
import type { TlsMaterial } from './listener.js'

export interface ConnectionOptions {
  readonly address: Address
  /** Which of the IP addresses of its host; whichever answers unless given. */
  readonly ip?: string | undefined
  /** PEM texts; needed for an address of kind `tls`. */
  readonly tls: TlsMaterial | undefined
  /** What is wrong with the names in the server's certificate, beside the name that the address must have there. */
  readonly checkNames?: (subjectAltName: string | undefined) => Error | undefined
  /** Largest response, in bytes. */
  readonly maxResponseBytes: number
  /** A server that is not ours may end connections that are pinged: by default Go's takes one ping in five minutes. */
  readonly isPinged?: false
}

/** Flow-control window of a peer, in bytes. The answers of one moment fit in it, so that none waits for a turn. */
const WINDOW_BYTES = 4 * 1024 * 1024
const HEALTH_TIMEOUT_MS = 1_000
export const HANGS = 'it does not answer health checks: see its /readyz'
const SERVES_NOT = 'its health check says NOT_SERVING'
/** The TLS server name sent for an IP address, which must not be sent as one (RFC 6066 §3; Node 26 insists). */
const NO_NAME = 'ip.invalid'
/** `status: SERVING` */
const SERVING = Buffer.from([0x08, 0x01])

export function target({ address, ip }: Pick<ConnectionOptions, 'address' | 'ip'>): string {
  if (address.kind === 'unix') return `unix:${address.path}`
  return `${hostInUrl(ip ?? address.host)}:${address.port}`
}

/** A peer that vanished without a word is noticed within two seconds, even while no answer is due. */
const PINGS = {
  'grpc.keepalive_time_ms': 1_000,
  'grpc.keepalive_timeout_ms': 1_000,
  'grpc.keepalive_permit_without_calls': 1,
}

export function connect(options: ConnectionOptions, credentials: grpc.ChannelCredentials): grpc.Client {
  const { address, ip } = options
  return new grpc.Client(target(options), credentials, {
    'grpc.max_receive_message_length': options.maxResponseBytes,
    'grpc.initial_reconnect_backoff_ms': 50,
    'grpc.min_reconnect_backoff_ms': 50,
    'grpc.max_reconnect_backoff_ms': 1_000,
    ...(options.isPinged !== false && PINGS),
    'grpc.enable_retries': 0,
    'grpc.use_local_subchannel_pool': 1,
    'grpc-node.flow_control_window': WINDOW_BYTES,
    ...(address.kind === 'tls' && isIP(address.host) !== 0 && { 'grpc.ssl_target_name_override': NO_NAME }),
    ...(address.kind === 'tls' && ip !== undefined && { 'grpc.ssl_target_name_override': address.host }),
  })
}

export function credentials({
  address,
  tls,
  checkNames,
}: Pick<ConnectionOptions, 'address' | 'tls' | 'checkNames'>): grpc.ChannelCredentials {
  if (address.kind !== 'tls') return grpc.credentials.createInsecure()
  if (!tls) throw new Error('a TLS address needs certificates')
  const { ca, key, cert } = tls
  // The certificate is checked against the address, whatever server name was sent.
  return grpc.credentials.createSsl(Buffer.from(ca), Buffer.from(key), Buffer.from(cert), {
    checkServerIdentity: (_name, certificate) =>
      checkServerIdentity(address.host, certificate) ?? checkNames?.(certificate.subjectaltname),
  })
}

/** What grpc-js puts around the cause of a failed connection. */
const AROUND_THE_CAUSE = /^No connection established\. Last error: (Error: )?|\.? Resolution note: $/g

/** What is worth telling of the text with which a call failed. */
export function causeOf(details: string): string {
  return details.replace(AROUND_THE_CAUSE, '')
}

/** For a server that answers, and has not what our own processes use between themselves. */
export function notServed(service: string): string {
  return `it does not serve ${service}: another version of survey-auth, or another server`
}

/**
 * undefined when the server says within a second, by `grpc.health.v1`, that it serves this service, or as a whole if that is empty;
 * otherwise what is known. Field 1 of the request is the name of the service, and field 1 of the response the status.
 */
export function whyNotServing(client: grpc.Client, service = ''): Promise<string | undefined> {
  return new Promise((resolve) => {
    client.makeUnaryRequest(
      '/grpc.health.v1.Health/Check',
      (empty: Buffer) => empty,
      (bytes) => bytes.equals(SERVING),
      Buffer.from([0x0a, service.length, ...Buffer.from(service)]),
      { deadline: Date.now() + HEALTH_TIMEOUT_MS },
      (error, isServing) => {
        if (error?.code === grpc.status.DEADLINE_EXCEEDED) resolve(HANGS)
        else if (error?.code === grpc.status.NOT_FOUND) resolve(notServed(service))
        else if (error) resolve(causeOf(error.details))
        else resolve(isServing ? undefined : SERVES_NOT)
      },
    )
  })
}
