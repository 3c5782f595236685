import type { Call } from '../rpc/dispatcher.js'

/** Who causes a change, and by which call. The first two are copied into the audit event. */
export interface Cause {
  readonly actor: 'app' | 'user' | 'operator' | 'survey_writer'
  /** UUID of the request. */
  readonly requestId: string
  /** By performance.now(): from then on the caller has been told that it failed, and it must not begin to happen. */
  readonly dueAtMs: number
}

export function causedBy(actor: Cause['actor'], { requestId, deadlineMs }: Call): Cause {
  return { actor, requestId, dueAtMs: deadlineMs }
}
