// The contract between SurveyService and its databases. The rules of token-store.ts hold here word for word: one call is
// one transaction, with its audit events, committed and flushed when it fulfils; `now` comes from the caller;
// StoreUnavailable when the database cannot be asked.
import { createHash } from 'node:crypto'
import { ErrorReason } from '../../../gen/surveyauth/v1/error_pb.js'
import { ServiceError } from '../../rpc/service-error.js'
import type { Cause } from '../../store/cause.js'
import type { Page, PageOf } from '../../store/page.js'

export interface SurveyRow {
  readonly surveyId: number
  readonly ownerUserId: string
  /** Grows whenever the survey is stored again. */
  readonly version: number
  readonly hash: string
  /** `surveyauth.v1.Survey` in protobuf binary form; its id and hash are empty, the columns hold them. */
  readonly document: Uint8Array
}

/** What a list shows, kept beside the document so that lists do not read documents. */
export interface SurveySummaryRow {
  readonly surveyId: number
  readonly hash: string
  readonly title: string
  /** Number of the proto enum SurveyState. */
  readonly state: number
}

/** A survey to store; `surveyId` 0 asks for a new id. */
export interface SurveyDraft {
  readonly surveyId: number
  /** Four hex digits; empty asks for `surveyHash(id)`. */
  readonly hash: string
  readonly title: string
  /** Number of the proto enum SurveyState. */
  readonly state: number
  readonly document: Uint8Array
}

/** Four hex digits that follow from the id: what a link to the survey carries beside it. */
export function surveyHash(surveyId: number): string {
  return createHash('sha256').update(`survey ${surveyId}`).digest('hex').slice(0, 4)
}

/** New ids are below: one from here on, which only an import gives, leaves room for all that are made. */
export const NEW_IDS_END = 2 ** 52

/** The higher of the two as far as new ids are concerned. */
export function higherId(highestId: number, surveyId: number): number {
  return surveyId < NEW_IDS_END ? Math.max(highestId, surveyId) : highestId
}

/** @throws ServiceError INVALID_ARGUMENT when the highest there can be is taken. */
export function nextId(highestId: number): number {
  if (highestId + 1 < NEW_IDS_END) return highestId + 1
  throw new ServiceError(ErrorReason.INVALID_ARGUMENT, 'no survey id is left above the highest one, so give the id')
}

/** Which part of a list: `limit` surveys after the first `offset`. */
export interface Window {
  readonly offset: number
  readonly limit: number
}

/** Part of a list, ascending by id; `total` counts all of the owner's, from the same moment as the rows. */
export interface SurveyList {
  readonly total: number
  readonly rows: readonly SurveySummaryRow[]
}

/** Which part of an export: at most `limit` surveys above `afterId`, the last of them the one that reaches `maxBytes` of documents. */
export interface ExportPage {
  readonly afterId: number
  readonly limit: number
  readonly maxBytes: number
}

/** What is audited of a survey. A new kind needs a line in docs/operations.md. */
export const SURVEY_EVENT_KINDS = ['survey.created', 'survey.replaced', 'survey.deleted'] as const
export type SurveyEventKind = (typeof SURVEY_EVENT_KINDS)[number]

export interface SurveyEventRow extends Pick<Cause, 'actor' | 'requestId'> {
  readonly eventId: string
  readonly atMs: number
  readonly kind: SurveyEventKind
  readonly surveyId: number
  /** Of a deleted one, whose it was. */
  readonly ownerUserId: string
}

/** Whose a deleted survey is. Its row stays, emptied, so that its id is not given again and its version goes on to grow. */
export const NOBODY = ''

export interface SurveyStore {
  findSurvey(surveyId: number): Promise<SurveyRow | undefined>
  listSurveys(ownerUserId: string, window: Window): Promise<SurveyList>
  /**
   * Stores all drafts or none. New ids ascend in the order of the drafts, above every id stored so far.
   * `id_taken`: an id belongs to another owner; it is named, and nothing was stored. One event for each survey.
   */
  putSurveys(
    ownerUserId: string,
    drafts: readonly SurveyDraft[],
    now: number,
    cause: Cause,
  ): Promise<
    | { readonly kind: 'stored'; readonly rows: readonly SurveySummaryRow[] }
    | { readonly kind: 'id_taken'; readonly surveyId: number }
  >
  /**
   * Deletes all or none; those deleted before stay so. `not_found`: no survey ever had the id, which is named. One event for
   * each survey that was there.
   */
  deleteSurveys(
    surveyIds: readonly number[],
    now: number,
    cause: Cause,
  ): Promise<{ readonly kind: 'deleted' } | { readonly kind: 'not_found'; readonly surveyId: number }>
  /** Ascending by id; all owners when `ownerUserId` is undefined. */
  exportSurveys(ownerUserId: string | undefined, page: ExportPage): Promise<readonly SurveyRow[]>
  /** Newest first. */
  listEvents(
    filter: { readonly surveyId?: number; readonly ownerUserId?: string },
    page: PageOf,
  ): Promise<Page<SurveyEventRow>>
  /** Removes at most `limit` events from before `beforeMs`, the oldest, and returns how many they were. */
  removeEvents(bounds: { readonly beforeMs: number; readonly limit: number }): Promise<number>
  /** Whether the database answers; rejects with StoreUnavailable if not. */
  ping(): Promise<void>
  close(): Promise<void>
}
