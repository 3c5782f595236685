/** What a part of the service needs from its process: the real clock and randomness, or a test's. */
export interface Clock {
  /** ms since 1970 UTC. */
  readonly now: () => number
  readonly randomBytes: (size: number) => Uint8Array
}

/** A service in this process. */
export interface Part {
  /** Why it cannot serve now; empty when it can. */
  notReady(): Promise<string[]>
  close(): Promise<void>
}

/** `name: unavailable` when the ping is rejected. */
export async function reasonUnless(name: string, ping: Promise<unknown>): Promise<string[]> {
  return ping.then(
    () => [],
    () => [`${name}: unavailable`],
  )
}
