// What the authorization page says an app may do, and which words it had: the user consents to those, and to no others.
import { createHash } from 'node:crypto'
import { Permission } from '../../gen/surveyauth/v1/token_service_pb.js'
import type { Texts } from './texts.js'

/** What a form asks for. */
export interface AskedConsent {
  readonly permissions: Permission[]
  /** Each text on a line of its own, hashed: it follows from the words, a platform's own ones too, so no change can be forgotten. */
  readonly consentVersion: string
  /** What the app may do, and what that means. */
  readonly lines: readonly (readonly [act: string, detail: string])[]
}

export function consentTo(permissions: Permission[], { authorization: t }: Texts): AskedConsent {
  const lines = [
    [t.basicProfile, t.basicProfileDetail],
    [t.readSurveys, t.readSurveysDetail],
    ...(permissions.includes(Permission.READ_ANSWERS) ? [[t.readAnswers, t.readAnswersDetail] as const] : []),
  ] as const
  const consentVersion = createHash('sha256').update(lines.flat().join('\n')).digest('hex').slice(0, 12)
  return { permissions, consentVersion, lines }
}

/** What a form asked for that had these words, whatever its app asks for by now; undefined if none of ours has them any more. */
export function consentOf(consentVersion: string, texts: readonly Texts[]): AskedConsent | undefined {
  return texts
    .flatMap((t) => [consentTo([], t), consentTo([Permission.READ_ANSWERS], t)])
    .find((consent) => consent.consentVersion === consentVersion)
}
