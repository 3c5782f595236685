import type { Call } from '../rpc/dispatcher.js'
import { type Cause, causedBy } from '../store/cause.js'

/** Whoever has no certificate of a survey_writer is an operator: who may call on this machine could open the database. */
export function causeOf(call: Call): Cause {
  return causedBy(call.caller === 'survey_writer' ? 'survey_writer' : 'operator', call)
}
