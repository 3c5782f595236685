// Permissions as messages name them, and as a code and its grant record them.
import { Permission } from '../../gen/surveyauth/v1/token_service_pb.js'
import { mayAskForAnswers, type Permissions } from '../protocol/consent.js'
import type { TokenRules } from './deps.js'
import type { AppRow } from './store/token-store.js'

export function recordedAs(asked: readonly Permission[]): Permissions {
  return asked.includes(Permission.READ_ANSWERS) ? 'read_answers' : ''
}

export function permissionsIn(recorded: Permissions): Permission[] {
  return recorded === '' ? [] : [Permission.READ_ANSWERS]
}

/** Whether the operator lets any app read answers. */
export const areAnswersOn = ({ answers }: TokenRules): boolean => answers === 'on'

/** What users of the app are asked for beyond the scope. */
export function permissionsAskedBy({ readsAnswers }: AppRow, rules: TokenRules): Permission[] {
  const isAsked = mayAskForAnswers({ appReadsAnswers: readsAnswers, areAnswersOn: areAnswersOn(rules) })
  return isAsked ? [Permission.READ_ANSWERS] : []
}
