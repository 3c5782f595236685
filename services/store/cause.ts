import type { Call } from '../rpc/dispatcher.js'

/** Who causes a change, and by which call. The first two are copied into the audit event. */
export interface Cause {
  readonly actor: 'app' | 'user' | 'operator' | 'survey_writer'
  /** UUID of the request. */
  readonly requestId: string
  /** By performance.now(): from then on the caller has been told that it failed. */
  readonly dueAt: number
  /** Aborted when the caller has gone away before. */
  readonly signal?: AbortSignal | undefined
}

export function causedBy(actor: Cause['actor'], { requestId, deadlineMs, signal }: Call): Cause {
  return { actor, requestId, dueAt: deadlineMs, signal }
}

/** Until when something may begin. */
export type Until = Pick<Cause, 'dueAt' | 'signal'>

/** Whether nobody waits any more for what has not begun: it must not happen, since the caller takes it for failed. */
export function isOver({ dueAt, signal }: Until): boolean {
  return performance.now() >= dueAt || signal?.aborted === true
}
