// What a provider may answer. Every record is checked: whose it is, that it was asked for, and by the rules of an import.
import { create } from '@bufbuild/protobuf'
import {
  type GetAnswerRequest,
  type GetAnswerResponse,
  type GetSurveyRequest,
  type GetSurveyResponse,
  type ListAnswersRequest,
  type ListAnswersResponse,
  ListAnswersResponseSchema,
  type ListSurveysRequest,
  type ListSurveysResponse,
  ListSurveysResponseSchema,
  type Owner,
} from '../../../gen/surveyauth/provider/v1/survey_provider_pb.js'
import { type Answer, AnswerSchema } from '../../../gen/surveyauth/v1/answer_pb.js'
import {
  type Survey,
  SurveyScene,
  SurveySchema,
  SurveyState,
  type SurveySummary,
} from '../../../gen/surveyauth/v1/survey_pb.js'
import { compileRules, violationInWords } from '../../rpc/validation.js'
import { contradictionIn } from '../contradictions.js'
import { refusalOf, toDraft } from '../import-answers.js'
import { surveyHash } from '../store/survey-store.js'
import type { Answers, SurveyPage } from '../surveys.js'
import { ProviderFailure } from './provider-failure.js'

const validateSurvey = compileRules(SurveySchema)
const validateList = compileRules(ListSurveysResponseSchema)
const validateAnswers = compileRules(ListAnswersResponseSchema)
const validateAnswer = compileRules(AnswerSchema)

/** Of ListSurveysResponse.total_size of SurveyService. */
const MAX_TOTAL = 2 ** 31 - 1

/** @throws ProviderFailure `ownership_violation` or `malformed` */
export function surveyIn(asked: GetSurveyRequest, { survey, owner }: GetSurveyResponse): Survey {
  if (!survey) throw malformed('survey is missing')
  requireOwner(asked.owner, owner, survey.id)
  if (survey.id !== asked.surveyId) throw violation(`survey ${survey.id} is answered for ${asked.surveyId}`)
  requireValid(survey)
  const contradiction = contradictionIn(survey)
  if (contradiction !== undefined) throw malformed(`survey ${survey.id}: ${contradiction}`)
  return completed(survey)
}

/** @throws ProviderFailure `ownership_violation` or `malformed` */
export function surveysIn(asked: ListSurveysRequest, answer: ListSurveysResponse): SurveyPage {
  const wrong = validateList(answer)
  if (wrong) throw malformed(violationInWords(wrong))
  if (answer.surveys.length > asked.limit) throw malformed(`more than the ${asked.limit} surveys asked for`)
  let lastId = 0n
  const surveys = answer.surveys.map(({ survey, owner }, at) => {
    if (!survey) throw malformed(`surveys[${at}].survey is missing`)
    requireOwner(asked.owner, owner, survey.id)
    const { id, hash, title, state } = survey
    if (id === 0n) throw malformed(`surveys[${at}] has no id`)
    requireValid(create(SurveySchema, { id, hash, title, state }))
    if (id <= lastId) throw malformed(`surveys[${at}]: the ids do not ascend`)
    lastId = id
    return completed(survey)
  })
  const end = surveys.length === 0 ? 0 : Number(asked.offset) + surveys.length
  const total = Math.max(Number(answer.totalSize), end) // what a platform counts and what it reads may be of two moments
  return { surveys, total: Math.min(total, MAX_TOTAL) }
}

/** @throws ProviderFailure `ownership_violation` or `malformed` */
export function answersIn(asked: ListAnswersRequest, list: ListAnswersResponse): Answers {
  const { answers, owner } = list
  requireOwner(asked.owner, owner, asked.surveyId)
  const wrong = validateAnswers(list)
  if (wrong) throw malformed(`survey ${asked.surveyId}: ${violationInWords(wrong)}`)
  if (answers.length > asked.limit) throw malformed(`more than the ${asked.limit} answers asked for`)
  let lastId = asked.afterAnswerId
  for (const [at, answer] of answers.entries()) {
    requireAnswer(answer, asked.surveyId)
    if (answer.answerId <= lastId) throw malformed(`answers[${at}]: the ids do not ascend from ${asked.afterAnswerId}`)
    lastId = answer.answerId
  }
  return { answers, total: Number(list.totalSize) }
}

/** @throws ProviderFailure `ownership_violation` or `malformed` */
export function answerIn(asked: GetAnswerRequest, { answer, owner }: GetAnswerResponse): Answer {
  if (!answer) throw malformed('answer is missing')
  requireOwner(asked.owner, owner, asked.surveyId)
  if (answer.answerId !== asked.answerId) throw violation(`answer ${answer.answerId} is answered for ${asked.answerId}`)
  requireAnswer(answer, asked.surveyId)
  const wrong = validateAnswer(answer)
  if (wrong) throw malformed(`${named(answer)}: ${violationInWords(wrong)}`)
  return answer
}

/** To the survey that was asked for, and by what the rules of an import are beside those of the proto. */
function requireAnswer(answer: Answer, surveyId: bigint): void {
  if (answer.surveyId !== surveyId)
    throw violation(`an answer to survey ${answer.surveyId} is answered for ${surveyId}`)
  const refusal = refusalOf(answer, toDraft(answer), surveyId)
  if (refusal !== undefined) throw malformed(`${named(answer)}: ${refusal}`)
}

function named({ answerId, surveyId }: Answer): string {
  return `answer ${answerId} to survey ${surveyId}`
}

/** Whether the owner of a record names one id of the one who was asked for, and none that they do not have. */
export function isOwner(told: Pick<Owner, OwnerId> | undefined, asked: Pick<Owner, OwnerId> | undefined): boolean {
  const ids = [
    [told?.externalId, asked?.externalId],
    [told?.userId, asked?.userId],
  ].filter(([ofTold]) => ofTold)
  return ids.length > 0 && ids.every(([ofTold, ofAsked]) => ofTold === ofAsked)
}

type OwnerId = 'externalId' | 'userId'

function requireOwner(asked: Owner | undefined, told: Owner | undefined, surveyId: bigint): void {
  if (!isOwner(told, asked)) throw violation(`survey ${surveyId} is not of the owner who was asked for`)
}

/** The rules by which surveys are imported. */
function requireValid(survey: Survey): void {
  const wrong = validateSurvey(survey)
  if (wrong) throw malformed(`survey ${survey.id}: ${violationInWords(wrong)}`)
}

/** With what an import sets too. */
function completed<Record extends Survey | SurveySummary>(survey: Record): Record {
  survey.hash ||= surveyHash(Number(survey.id))
  survey.state ||= SurveyState.DRAFT
  if (survey.$typeName === SurveySchema.typeName) survey.scene ||= SurveyScene.SURVEY
  return survey
}

function malformed(what: string): ProviderFailure {
  return new ProviderFailure('malformed', what)
}

function violation(what: string): ProviderFailure {
  return new ProviderFailure('ownership_violation', what)
}
