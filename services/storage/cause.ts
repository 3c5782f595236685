/** Who causes a change, and by which call. The first four are copied into the audit event. */
export interface Cause {
  readonly actor: 'app' | 'user' | 'operator' | 'survey_writer' | 'sign_in'
  /** Which operator, writer or platform, by its name in Peer; empty for an app or a user, whom the event names. */
  readonly actorId: string
  /** What says so: `certificate`, `local`, or the identity provider of a sign-in; empty for an app or a user by itself. */
  readonly actorSource: string
  /** UUID of the request. */
  readonly requestId: string
  /** By performance.now(): from then on the caller has been told that the call failed. */
  readonly dueAt: number
  /** Aborted when the caller goes away before that. */
  readonly signal?: AbortSignal | undefined
}

/** What a cause takes from the call it comes from. */
interface CausingCall {
  readonly callerName: string
  readonly requestId: string
  readonly deadlineMs: number
  readonly signal: AbortSignal | undefined
}

export function causedBy(actor: Cause['actor'], { callerName, requestId, deadlineMs, signal }: CausingCall): Cause {
  const isNamed = actor !== 'app' && actor !== 'user'
  const source = /^(uid:|loopback$)/.test(callerName) ? 'local' : 'certificate'
  const by = { actorId: isNamed ? callerName : '', actorSource: isNamed ? source : '' }
  return { actor, ...by, requestId, dueAt: deadlineMs, signal }
}

/** Until when something may begin. */
export type Until = Pick<Cause, 'dueAt' | 'signal'>

/** Whether nobody waits any longer. What has not begun by then must not happen, since the caller takes it for failed. */
export function isOver({ dueAt, signal }: Until): boolean {
  return performance.now() >= dueAt || signal?.aborted === true
}
