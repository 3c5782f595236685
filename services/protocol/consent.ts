// Whether a good access token permits more than its scope says, as a pure function. TokenService asks it of what the store has found.

/** What a user may consent to beyond the scope, as a grant records it; empty for nothing. */
export type Permissions = '' | 'read_answers'

export interface AnswersFacts {
  /** Of the grant: what its user was shown and confirmed. It gains nothing later. */
  readonly permissions: Permissions
  /** Whether the operator lets the app ask for answers. */
  readonly appReadsAnswers: boolean
}

/** decisions 49: consent counts for as long as the app may ask for it. */
export function mayReadAnswers({ permissions, appReadsAnswers }: AnswersFacts): boolean {
  return permissions === 'read_answers' && appReadsAnswers
}
