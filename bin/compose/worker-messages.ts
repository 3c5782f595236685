// What a process with --workers and its workers tell each other, over the channel that node:cluster opens between them.
import type { ExitCode } from '../exit.js'
import type { Snapshot } from '../telemetry/metrics.js'

export type ToWorker =
  | { readonly type: 'stop' } // answer what is in flight, then end
  | { readonly type: 'dismiss' } // the same, once the channel is closed, which comes next
  | { readonly type: 'count'; readonly question: number } // asks for `counted`

export type FromWorker =
  | { readonly type: 'serving'; readonly url: string }
  | { readonly type: 'failed'; readonly failure: StartFailure }
  /** This worker was asked to end: it goes on until a successor serves. */
  | { readonly type: 'leaving' }
  | ({ readonly type: 'counted' } & Counted)

export interface Counted {
  /** Which one this answers; 0 when unasked, as before `serving`. */
  readonly question: number
  readonly snapshot: Snapshot
  /** Why it cannot answer requests, although it accepts them. */
  readonly notReady: readonly string[]
}

/** Why a worker could not start: the members of a CommandError. */
export interface StartFailure {
  readonly text: string
  readonly exitCode: ExitCode
  readonly hint?: string | undefined
}
