export class Fleet {
  /** `env`: variables of the operating contract for all processes. */
  constructor(databaseUrl: string, env?: Readonly<Record<string, string>>)
  /** Addresses of the two gateways; PUBLIC_URL of both is the first. */
  readonly gateways: readonly string[]
  /** Addresses of /healthz and /readyz, by process: gateway1, gateway2, token1, token2, survey1, survey2. A restart changes it. */
  readonly adminUrls: Readonly<Record<string, string>>
  /** Processes that ended although nobody stopped them, each with its code or signal. */
  readonly ended: readonly string[]
  /** The last of what the processes wrote to stderr. */
  readonly output: string
  /** Starts all six at once; fulfils when each says that it is ready. */
  start(): Promise<void>
  /** Ends one of them by a signal; fulfils when it is gone. */
  end(name: string, signal: NodeJS.Signals): Promise<void>
  /** Starts one that was ended, with its settings and these, and this program if given; fulfils when it says that it is ready. */
  startAgain(name: string, env?: Readonly<Record<string, string>>, program?: string): Promise<void>
  /** Runs a command of a program with the variables of all. */
  run(
    program: string,
    args: readonly string[],
  ): Promise<{ readonly exitCode: number; readonly stdout: string; readonly stderr: string }>
  untilReady(name: string): Promise<void>
  isReady(name: string): Promise<boolean>
  /** Kills all and removes their directory. */
  stop(): Promise<void>
  /** An operator's call, for example `AdminService/CreateApp`. @throws Error when the answer is not 200 */
  rpc(method: string, message: Readonly<Record<string, unknown>>): Promise<Record<string, unknown>>
}
