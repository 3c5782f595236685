// The contract between SurveyService and its databases. The rules of token-store.ts apply word for word: one call is one
// transaction, with its audit events, committed and flushed when it fulfils; `now` comes from the caller; StoreUnavailable
// when the database cannot be asked.
import { createHash } from 'node:crypto'
import type { Cause } from '../../storage/cause.js'
import type { CleanUps } from '../../storage/clean-up-clock.js'
import type { Connections } from '../../storage/connections.js'
import type { Flaw } from '../../storage/flaw.js'
import type { Page, PageOf } from '../../storage/page.js'
import { StoreRefused } from '../../storage/store-refused.js'
import type { AnswerStore } from './answer-store.js'
import type { SurveyEventRow } from './survey-event.js'

export interface SurveyRow {
  readonly surveyId: number
  readonly ownerUserId: string
  readonly hash: string
  /** `surveyauth.v1.Survey` in protobuf binary form; its id and hash are empty, the columns hold them. */
  readonly document: Uint8Array
}

/** What a list shows, stored next to the document so that lists do not read documents. */
export interface SurveySummaryRow {
  readonly surveyId: number
  readonly hash: string
  readonly title: string
  /** Number of the proto enum SurveyState. */
  readonly state: number
}

export interface OwnedSummaryRow extends SurveySummaryRow {
  readonly ownerUserId: string
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

/** Four hex digits derived from the id: links to the survey carry both. */
export function surveyHash(surveyId: number): string {
  return createHash('sha256').update(`survey ${surveyId}`).digest('hex').slice(0, 4)
}

/** New ids are below this. An id from here on, which only an import can give, does not use up the ids below. */
export const NEW_IDS_END = 2 ** 52

/** The higher id of the two, ignoring one that new ids never reach. */
export function higherId(highestId: number, surveyId: number): number {
  return surveyId < NEW_IDS_END ? Math.max(highestId, surveyId) : highestId
}

/** @throws StoreRefused when the highest possible id is taken. */
export function nextId(highestId: number): number {
  if (highestId + 1 < NEW_IDS_END) return highestId + 1
  throw new StoreRefused('no survey id is left above the highest one, so give the id')
}

/** Which part of a list: `limit` surveys after the first `offset`. */
export interface Window {
  readonly offset: number
  readonly limit: number
}

/** Part of a list, ascending by id; `total` counts all surveys of the owner, at the same moment as the rows. */
export interface SurveyList {
  readonly total: number
  readonly rows: readonly SurveySummaryRow[]
}

/** Which part of an export: at most `limit` surveys above `afterId`, ending with the one that reaches `maxBytes` of documents. */
export interface ExportPage {
  readonly afterId: number
  readonly limit: number
  readonly maxBytes: number
}

/** The owner of a deleted survey. Its emptied row stays, so that its id is not given out again. */
export const NOBODY = ''

export interface SurveyStore extends AnswerStore, CleanUps {
  findSurvey(surveyId: number): Promise<SurveyRow | undefined>
  listSurveys(ownerUserId: string, window: Window): Promise<SurveyList>
  /**
   * Stores all drafts or none. New ids ascend in the order of the drafts, above every id stored so far.
   * `id_taken`: the named id belongs to another owner, and nothing was stored. One event for each survey.
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
   * Deletes all or none, with their answers; surveys already deleted, of which `alreadyDeleted` is the number, stay deleted.
   * `not_found`: no survey ever had the named id. One event for each survey that existed.
   */
  deleteSurveys(
    surveyIds: readonly number[],
    now: number,
    cause: Cause,
  ): Promise<
    | { readonly kind: 'deleted'; readonly alreadyDeleted: number }
    | { readonly kind: 'not_found'; readonly surveyId: number }
  >
  /** Ascending by id; all owners when `ownerUserId` is undefined. */
  exportSurveys(ownerUserId: string | undefined, page: ExportPage): Promise<readonly SurveyRow[]>
  /** The same surveys without their documents, which are not read. */
  exportSummaries(
    ownerUserId: string | undefined,
    page: Pick<ExportPage, 'afterId' | 'limit'>,
  ): Promise<readonly OwnedSummaryRow[]>
  /** Newest first. */
  listEvents(
    filter: { readonly surveyId?: number; readonly ownerUserId?: string },
    page: PageOf,
  ): Promise<Page<SurveyEventRow>>
  /** Removes at most `limit` events from before `beforeMs`, the oldest, and returns how many they were. */
  removeEvents(bounds: { readonly beforeMs: number; readonly limit: number }): Promise<number>
  /** What is wrong with the database although it answers; rejects with StoreUnavailable if it does not. */
  ping(): Promise<readonly Flaw[]>
  /** Only of a database that is a server. */
  connections?(): Connections
  close(): Promise<void>
}
