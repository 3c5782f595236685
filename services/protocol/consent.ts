// Whether a good access token permits more than its scope says, as a pure function. TokenService asks it of what the store has found.

/** What a user may consent to beyond the scope, as a grant records it; empty for nothing. */
export type Permissions = '' | 'read_answers'

export interface AnswersFacts {
  /** Whether the operator lets any app read answers. */
  readonly areAnswersOn: boolean
  /** Of the grant: what its user was shown and confirmed. It gains nothing later. */
  readonly permissions: Permissions
  /** Whether the operator lets this app ask for answers. */
  readonly appReadsAnswers: boolean
}

/** decisions 49: consent counts for as long as the app may ask for it. */
export function mayReadAnswers({ permissions, ...asked }: AnswersFacts): boolean {
  return mayAskForAnswers(asked) && permissions === 'read_answers'
}

/** Whether users are asked. */
export function mayAskForAnswers({ areAnswersOn, appReadsAnswers }: Omit<AnswersFacts, 'permissions'>): boolean {
  return areAnswersOn && appReadsAnswers
}
