/** Who causes a change, and by which call. The first two are copied into the audit event. */
export interface Cause {
  readonly actor: 'app' | 'user' | 'operator' | 'survey_writer' | 'sign_in'
  /** UUID of the request. */
  readonly requestId: string
  /** By performance.now(): from then on the caller has been told that the call failed. */
  readonly dueAt: number
  /** Aborted when the caller goes away before that. */
  readonly signal?: AbortSignal | undefined
}

/** What a cause takes from the call it comes from. */
interface CausingCall {
  readonly requestId: string
  readonly deadlineMs: number
  readonly signal: AbortSignal | undefined
}

export function causedBy(actor: Cause['actor'], { requestId, deadlineMs, signal }: CausingCall): Cause {
  return { actor, requestId, dueAt: deadlineMs, signal }
}

/** Until when something may begin. */
export type Until = Pick<Cause, 'dueAt' | 'signal'>

/** Whether nobody waits any longer. What has not begun by then must not happen, since the caller takes it for failed. */
export function isOver({ dueAt, signal }: Until): boolean {
  return performance.now() >= dueAt || signal?.aborted === true
}
