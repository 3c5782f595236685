// A process as seen by whoever starts it.
import type { DescService } from '@bufbuild/protobuf'
import type { Client } from '@connectrpc/connect'
import type { Caller } from '../../services/rpc/callers.js'
import type { PasswordCost } from '../../services/token/password/hasher.js'
import type { Readiness } from '../telemetry/admin-http.js'
import type { Log } from '../telemetry/log.js'

export interface Overrides {
  /** ms since 1970 UTC; the system clock unless given. */
  readonly now?: () => number
  /** ms since some moment, whatever the clock does; that of the process unless given. */
  readonly elapsed?: () => number
  readonly randomBytes?: (size: number) => Uint8Array
  /** Where the log goes; stderr unless given. */
  readonly logStream?: NodeJS.WritableStream
  /** Of new passwords; a production cost unless given. */
  readonly passwordCost?: PasswordCost
}

/** A running process. */
export interface Running {
  /** Address of the gateway; empty without one. */
  readonly url: string
  /** Address of the RPC doors; undefined without them. */
  readonly rpcAddress: string | undefined
  /** Address of /healthz, /readyz and /metrics; undefined when turned off. */
  readonly adminUrl: string | undefined
  readonly log: Log
  /** A service of this process, called as any caller, or of another process, called in the role this process has there. */
  client<S extends DescService>(service: S, caller: Caller): Client<S>
  readiness(): Promise<Readiness>
  /** Runs one round of each janitor of this process now; rejects if there is none. */
  runJanitors(): Promise<void>
  /** /readyz 503, after DRAIN_SECONDS stop accepting, finish what is in flight, record last uses, close the databases. */
  close(): Promise<void>
}
