export interface Gateway {
  readonly url: string
  /** Of /healthz, /readyz and /metrics. */
  readonly adminUrl: string
}

export class Fleet {
  /** `env`: variables of the operating contract for all processes. */
  constructor(databaseUrl: string, env?: Readonly<Record<string, string>>)
  /** PUBLIC_URL of both is the address of the first. */
  readonly gateways: readonly Gateway[]
  /** Processes that ended although nobody stopped them, each with its code or signal. */
  readonly ended: readonly string[]
  /** The last of what the processes wrote to stderr. */
  readonly output: string
  /** Starts all six at once; fulfils when both gateways say that they are ready. */
  start(): Promise<void>
  /** Kills all and removes their directory. */
  stop(): Promise<void>
  /** An operator's call, for example `AdminService/CreateApp`. @throws Error when the answer is not 200 */
  rpc(method: string, message: Readonly<Record<string, unknown>>): Promise<Record<string, unknown>>
}
