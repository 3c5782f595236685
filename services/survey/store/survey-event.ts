// The audit trail of surveys and of the answers to them.
import { createHash } from 'node:crypto'
import type { Cause } from '../../storage/cause.js'
import { firstIdAt } from '../../storage/event-ids.js'

/** What is audited about surveys. A new kind needs a line in docs/operators/access.md. */
export const SURVEY_EVENT_KINDS = [
  'survey.created',
  'survey.replaced',
  'survey.deleted',
  'answers.imported',
  'answers.deleted',
  'answers.read',
] as const
export type SurveyEventKind = (typeof SURVEY_EVENT_KINDS)[number]

export interface SurveyEventRow extends Pick<Cause, 'actor' | 'actorId' | 'actorSource' | 'requestId'> {
  readonly eventId: string
  readonly atMs: number
  readonly kind: SurveyEventKind
  readonly surveyId: number
  /** The former owner, if it was deleted. */
  readonly ownerUserId: string
  /** The app that read answers; otherwise empty. */
  readonly appid: string
  /** Of the answers that it is about, the lowest and the highest id; otherwise 0. */
  readonly firstAnswerId: number
  readonly lastAnswerId: number
}

/** What an event says besides who caused it. */
export type SurveyHappening = Pick<SurveyEventRow, 'kind' | 'surveyId' | 'ownerUserId'> &
  Partial<Pick<SurveyEventRow, 'firstAnswerId' | 'lastAnswerId'>>

/** That an app read answers. */
export interface AnswersRead {
  readonly appid: string
  readonly surveyId: number
  readonly ownerUserId: string
  /** When the hour began, in ms since 1970. */
  readonly hourMs: number
  readonly firstId: number
  readonly lastId: number
  readonly requestId: string
}

/** The one event about an app, a survey of an owner and an hour has one id, whichever process writes it. */
export function readEvent(read: AnswersRead): SurveyEventRow {
  const { appid, surveyId, ownerUserId, hourMs, firstId, lastId, requestId } = read
  const about = createHash('sha256').update(`${appid} ${surveyId} ${ownerUserId}`).digest('hex').slice(0, 24)
  return {
    eventId: firstIdAt(hourMs) + about,
    atMs: hourMs,
    kind: 'answers.read',
    actor: 'app',
    actorId: '',
    actorSource: '',
    requestId,
    surveyId,
    ownerUserId,
    appid,
    firstAnswerId: firstId,
    lastAnswerId: lastId,
  }
}
