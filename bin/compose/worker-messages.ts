// What a process with --workers and its workers tell each other, over the channel that node:cluster opens between them.
import type { ExitCode } from '../exit.js'
import type { Snapshot } from '../telemetry/metrics.js'

export type ToWorker =
  | { readonly type: 'stop' } // answer what is in flight, then end
  | { readonly type: 'dismiss' } // the same, when the channel is closed, which comes next
  | { readonly type: 'count' } // asks for `counted`

export type FromWorker =
  | { readonly type: 'serving'; readonly url: string }
  | { readonly type: 'failed'; readonly failure: StartFailure }
  /** Somebody asks this worker to end: it goes on until a successor serves. */
  | { readonly type: 'leaving' }
  /** Comes before `serving` too. `notReady`: why it cannot answer requests, although it takes them. */
  | { readonly type: 'counted'; readonly snapshot: Snapshot; readonly notReady: readonly string[] }

/** Why a worker could not start; a CommandError in pieces. */
export interface StartFailure {
  readonly text: string
  readonly exitCode: ExitCode
  readonly hint?: string | undefined
}
