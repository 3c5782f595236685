// The part of the survey store that holds answers, under the same rules. The answers of a survey are a set. A set whose survey
// is deleted, or whose answers all are, is nobody's: no read finds it, and the janitor removes it by and by.
import type { Cause } from '../../storage/cause.js'
import { StoreRefused } from '../../storage/store-refused.js'
import type { AnswersRead } from './survey-event.js'

export interface AnswerRow {
  readonly answerId: number
  /** `surveyauth.v1.Answer` in protobuf binary form, without its ids. */
  readonly document: Uint8Array
}

/** An answer to store; `answerId` 0 asks for a new id. */
export interface AnswerDraft extends AnswerRow {
  /** Of its end_time; 0 if unset. */
  readonly endSeconds: number
}

/** End times, in seconds since 1970. */
export interface Interval {
  readonly since: number
  /** Exclusive. */
  readonly until: number
}

/** At most `limit` answers above `afterId`, ending with the one that reaches `maxBytes` of documents. */
export interface AnswerPage {
  readonly afterId: number
  readonly limit: number
  readonly maxBytes: number
  /** Only those that ended then. */
  readonly interval?: Interval | undefined
}

export interface AnswerList {
  /** Of all pages, at the same moment as the rows. */
  readonly total: number
  /** Ascending by id. */
  readonly rows: readonly AnswerRow[]
}

/** Where reads and writes count on end times being grouped. Times of one hour of one set are counted one by one. */
export const HOUR_SECONDS = 3_600

/** The interval in whole hours: those that it touches, and the seconds that these have before and after it. */
export function hoursOf({ since, until }: Interval) {
  const [first, end] = [Math.floor(since / HOUR_SECONDS), Math.ceil(until / HOUR_SECONDS)]
  return { first, end, before: first * HOUR_SECONDS, after: end * HOUR_SECONDS }
}

/** Up to this many answers in an interval are all looked up by time and sorted; more lie close enough to each other to be met by id. */
export const FEW_ANSWERS = 10_000

/** How many answers end in an hour, and the lowest and the highest of their ids. */
export interface Hour {
  readonly hour: number
  readonly answers: number
  readonly firstId: number
  readonly lastId: number
}

/** By hour of their end times. */
export function byHour(stored: readonly Pick<AnswerDraft, 'answerId' | 'endSeconds'>[]): readonly Hour[] {
  const hours = new Map<number, Hour>()
  for (const { answerId, endSeconds } of stored) {
    const hour = Math.floor(endSeconds / HOUR_SECONDS)
    const { answers, firstId } = hours.get(hour) ?? { answers: 0, firstId: answerId }
    hours.set(hour, { hour, answers: answers + 1, firstId, lastId: answerId })
  }
  return [...hours.values()]
}

const MAX_ANSWER_ID = Number.MAX_SAFE_INTEGER

type Judged =
  | {
      readonly kind: 'good'
      /** Ids of all drafts, in their order. */
      readonly answerIds: readonly number[]
      /** Those that are not stored yet, each with its id. */
      readonly fresh: readonly AnswerDraft[]
    }
  | AnswersRefused

/** `taken`: the named answer is stored and differs. `passed`: its id is not above the highest one, and there is no such answer. */
export interface AnswersRefused {
  readonly kind: 'taken' | 'passed'
  readonly answerId: number
}

/** The ids that drafts get in a set. `known`: those of the set that have one of the ids given. */
export function judgeDrafts(
  drafts: readonly AnswerDraft[],
  highestId: number,
  known: ReadonlyMap<number, Uint8Array>,
): Judged {
  const fresh: AnswerDraft[] = []
  const answerIds: number[] = []
  let lastId = highestId
  for (const draft of drafts) {
    const answerId = draft.answerId || lastId + 1
    answerIds.push(answerId)
    if (answerId > MAX_ANSWER_ID) throw new StoreRefused('no answer id is left above the highest one')
    if (answerId > lastId) {
      fresh.push({ ...draft, answerId })
      lastId = answerId
      continue
    }
    const stored = known.get(answerId)
    if (!stored) return { kind: 'passed', answerId }
    if (Buffer.compare(stored, draft.document) !== 0) return { kind: 'taken', answerId }
  }
  return { kind: 'good', answerIds, fresh }
}

export interface AnswerStore {
  /** undefined if there is no such survey; of this owner, if one is given. */
  listAnswers(
    survey: { readonly surveyId: number; readonly ownerUserId?: string | undefined },
    page: AnswerPage,
  ): Promise<AnswerList | undefined>
  /** undefined if there is no such survey of this owner, or no such answer to it. */
  findAnswer(
    survey: { readonly surveyId: number; readonly ownerUserId: string },
    answerId: number,
  ): Promise<AnswerRow | undefined>
  /**
   * Stores all drafts or none, each under the id that it gives, which must be above the highest that the set ever had, or under the
   * next one. Whoever sees an id sees all lower ones. Drafts that are stored already stay as they are. One event if any was stored.
   */
  putAnswers(
    surveyId: number,
    drafts: readonly AnswerDraft[],
    now: number,
    cause: Cause,
  ): Promise<
    | { readonly kind: 'stored'; readonly answerIds: readonly number[]; readonly alreadyStored: number }
    | { readonly kind: 'not_found' }
    | AnswersRefused
  >
  /**
   * Deletes all that are named or none; `undefined` names all of the survey. `not_found`: there is no such survey, or no answer to it
   * ever had an id as high as the named one. One event for each answer; one if all are deleted.
   */
  deleteAnswers(
    surveyId: number,
    answerIds: readonly number[] | undefined,
    now: number,
    cause: Cause,
  ): Promise<
    | { readonly kind: 'deleted'; readonly deleted: number; readonly alreadyDeleted: number }
    | { readonly kind: 'not_found'; readonly answerId?: number | undefined }
  >
  /** Removes at most `limit` rows of sets that are nobody's, and returns how many they were. */
  removeAnswers(bounds: { readonly limit: number }): Promise<number>
  /** Writes the event, or widens the ids of the one that is there. */
  recordAnswersRead(read: AnswersRead): Promise<void>
  /** The key of respondents' pseudonyms; `candidate` from the first call on. */
  respondentKey(candidate: Uint8Array): Promise<Uint8Array>
}
