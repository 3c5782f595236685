// A survey as JSON: the shape of the detail endpoint (decisions 26). survey-from-json.ts reads it.
import type { JsonObject, JsonValue } from '@bufbuild/protobuf'
import type { Timestamp } from '@bufbuild/protobuf/wkt'
import {
  type Option,
  type Page,
  type Question,
  type SubTitle,
  type Survey,
  SurveyState,
} from '../../gen/surveyauth/v1/survey_pb.js'
import { jsonBytes } from '../answer.js'

/** Where a survey stands, as numbers of the dialect (decisions 25). */
export const jsonStates: Readonly<Record<SurveyState, number>> = {
  [SurveyState.UNSPECIFIED]: 0,
  [SurveyState.DRAFT]: 0,
  [SurveyState.COLLECTING]: 2,
  [SurveyState.PAUSED]: 3,
}

/** The survey as a JSON object. */
export function surveyToJson(survey: Survey, creatorUserId: number): object {
  return { ...headToJson(survey), creator_user_id: creatorUserId, pages: survey.pages.map(pageToJson) }
}

const known = new WeakMap<Survey, { readonly head: string; readonly pages: string }>()

/** surveyToJson through jsonBytes; for a message seen before, only what differs between apps is serialized again. */
export function surveyBytes(survey: Survey, creatorUserId: number): string {
  let parts = known.get(survey)
  if (!parts) {
    const head = jsonBytes(headToJson(survey)).slice(0, -1)
    parts = { head, pages: jsonBytes(survey.pages.map(pageToJson)) }
    known.set(survey, parts)
  }
  return `${parts.head},"creator_user_id":${creatorUserId},"pages":${parts.pages}}`
}

/** The survey up to `creator_user_id`, with its keys in the order in which the live service of this dialect sends them. */
function headToJson(survey: Survey): object {
  const [startTime, endTime] = [unixSeconds(survey.startTime), unixSeconds(survey.endTime)]
  const { creator_user_id: _, pages: __, ...extra } = survey.extra ?? {}
  const own = {
    id: Number(survey.id),
    hash: survey.hash,
    scene: String(survey.scene), // text, as published clients are typed
    title: survey.title,
    prefix: survey.prefix,
    suffix: survey.suffix,
    state: jsonStates[survey.state],
    page_count: survey.pages.length,
    topic_count: survey.pages.reduce((count, page) => count + page.questions.filter(isTopic).length, 0),
    startTime,
    endTime,
    started_at: shanghaiTime(startTime),
    end_at: shanghaiTime(endTime),
    createTime: unixSeconds(survey.createTime),
    updateTime: unixSeconds(survey.updateTime),
  }
  return withExtra(own, extra)
}

/** What has a field of its own is shown rather than what `extra` holds under that name. */
function withExtra(own: object, extra: JsonObject | undefined): object {
  return extra ? { ...own, ...extra, ...own } : own
}

/** A description asks nothing, so it is not a topic. */
function isTopic(question: Question): boolean {
  return question.type !== 'description'
}

function pageToJson({ id, index, questions, extra }: Page): object {
  return withExtra({ id, index, questions: questions.map(questionToJson) }, extra)
}

function questionToJson(question: Question): object {
  const { id, index, type, title, description, required, extra } = question
  const { starNum, starBeginNum } = starsOf(question)
  const own = {
    id,
    index,
    type,
    sub_type: question.subType,
    title,
    description,
    required,
    goto: gotoOf(question),
    options: question.options.map(optionToJson),
    ...(starNum === undefined ? {} : { starNum }),
    ...(starBeginNum === undefined ? {} : { starBeginNum }),
    ...(hasRows(type, question.subTitles) ? { subTitles: question.subTitles.map(subTitleToJson) } : {}),
  }
  return withExtra(own, extra)
}

/** Text, or the object that some systems write instead. */
function gotoOf({ goto, extra }: Question | Option): JsonValue {
  return extra?.goto ?? goto
}

function hasRows(type: string, subTitles: readonly unknown[]): boolean {
  return type.startsWith('matrix_') || subTitles.length > 0
}

function optionToJson(option: Option): object {
  const { id, text, exclusive, extra } = option
  return withExtra({ id, text, exclusive, goto: gotoOf(option) }, extra)
}

function subTitleToJson({ id, text, extra }: SubTitle): object {
  return withExtra({ id, text }, extra)
}

/** 0 if unset. */
export function unixSeconds(time: Timestamp | undefined): number {
  return Number(time?.seconds ?? 0)
}

const MILLISECONDS = '.000Z' // the end of an ISO 8601 time, which is not shown

export const MAX_UNIX_SECONDS = 253_402_300_799 // the end of year 9999

const SHANGHAI_OFFSET_SECONDS = 8 * 60 * 60 // no summer time since 1991

/** `YYYY-MM-DD HH:MM:SS` in Asia/Shanghai, the end of year 9999 for anything later; '' for 0, which means unset. */
export function shanghaiTime(unixSeconds: number): string {
  if (unixSeconds === 0) return ''
  return new Date(Math.min(unixSeconds + SHANGHAI_OFFSET_SECONDS, MAX_UNIX_SECONDS) * 1000)
    .toISOString()
    .slice(0, -MILLISECONDS.length)
    .replace('T', ' ')
}

/** A star question always says how many stars it has, and where they begin (decisions 26). */
function starsOf({ type, starNum, starBeginNum }: Question): Partial<Pick<Question, 'starNum' | 'starBeginNum'>> {
  return type === 'star' ? { starNum: starNum ?? 5, starBeginNum: starBeginNum ?? 1 } : { starNum, starBeginNum }
}
