// What the authorization page says an app may do, and which words it had: the user consents to those, and to no others.
import { createHash } from 'node:crypto'
import { Permission } from '../../gen/surveyauth/v1/token_service_pb.js'
import type { Params } from '../query.js'
import type { Texts } from './texts.js'
import type { HiddenField } from './view.js'

/** What a form asked for when it was shown. */
export interface AskedConsent {
  readonly permissions: Permission[]
  readonly consentVersion: string
}

type ConsentLine = readonly [act: string, detail: string]

/** One per permission, after what every app may do. */
export function consentLines({ authorization: t }: Texts, permissions: readonly Permission[]): readonly ConsentLine[] {
  return [
    [t.basicProfile, t.basicProfileDetail],
    [t.readSurveys, t.readSurveysDetail],
    ...(permissions.includes(Permission.READ_ANSWERS) ? [[t.readAnswers, t.readAnswersDetail] as const] : []),
  ]
}

/** Follows from the words, a platform's own ones too: no change of them can be forgotten. */
export function versionOf(lines: readonly ConsentLine[]): string {
  return createHash('sha256').update(lines.flat().join('\n')).digest('hex').slice(0, 12)
}

/** Signed with the form: a confirmation means what was shown, whatever the app asks for by then. */
export function consentFields({ permissions, consentVersion }: AskedConsent): readonly HiddenField[] {
  return [
    { name: 'reads_answers', value: permissions.includes(Permission.READ_ANSWERS) ? '1' : '' },
    { name: 'consent_version', value: consentVersion },
  ]
}

export function readConsent(form: Params): AskedConsent {
  const permissions = form.optional('reads_answers', 1) === '1' ? [Permission.READ_ANSWERS] : []
  return { permissions, consentVersion: form.optional('consent_version', 64) }
}
