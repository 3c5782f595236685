import type { Call } from '../rpc/dispatcher.js'
import { type Cause, causedBy } from '../storage/cause.js'

/** A caller without a survey_writer certificate is an operator: whoever may call on this machine could open the database. */
export function causeOf(call: Call): Cause {
  return causedBy(call.caller === 'survey_writer' ? 'survey_writer' : 'operator', call)
}
