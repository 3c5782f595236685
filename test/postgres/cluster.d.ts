/** How to end the server: after its clients, after what is in flight, or like a crash. */
export type StopMode = 'smart' | 'fast' | 'immediate'

export class Cluster {
  private constructor()
  readonly port: number
  /** A new, empty, running server with settings for `postgresql.conf`. */
  static create(settings?: Readonly<Record<string, string>>): Promise<Cluster>
  /** A standby that streams from this server, which is restarted so that it can be copied. It answers reads when this returns. */
  createStandby(): Promise<Cluster>
  urlOf(database: string): string
  /** An empty database; its address. */
  createDatabase(): Promise<string>
  /** Returns when the server takes connections. */
  start(): Promise<void>
  /** Returns when the server is gone. */
  stop(mode?: StopMode): Promise<void>
  /** Ends the server and removes its files. */
  destroy(): Promise<void>
}

export function urlOf(port: number, database: string): string

/** Runs statements in a database, bypassing the stores. */
export function query(url: string, text: string): Promise<Record<string, unknown>[]>
