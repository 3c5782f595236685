import { create, type MessageInitShape, toBinary } from '@bufbuild/protobuf'
import { type Timestamp, TimestampSchema } from '@bufbuild/protobuf/wkt'
import { type Answer, type AnsweredQuestion, AnswerSchema } from '../../gen/surveyauth/v1/answer_pb.js'
import { ErrorReason } from '../../gen/surveyauth/v1/error_pb.js'
import type { ImportAnswersRequest, ImportAnswersResponseSchema } from '../../gen/surveyauth/v1/survey_service_pb.js'
import type { Call } from '../rpc/dispatcher.js'
import { ServiceError } from '../rpc/service-error.js'
import { causeOf } from './cause.js'
import type { SurveyDeps } from './deps.js'
import type { AnswerDraft, AnswersRefused } from './store/answer-store.js'

/** Of one answer as stored: far more than people type, and few enough that a page of large ones stays small. */
export const MAX_ANSWER_BYTES = 400_000

/** Of one answer: questions, and what they hold. An empty one takes two bytes here, and a hundred in an app's JSON. */
const MAX_ANSWER_ELEMENTS = 20_000

/** Stores answers to one survey, all or none. */
export function importAnswers(deps: SurveyDeps) {
  return async (
    { surveyId, answers }: ImportAnswersRequest,
    call: Call,
  ): Promise<MessageInitShape<typeof ImportAnswersResponseSchema>> => {
    const drafts = answers.map((answer, at) => {
      const draft = toDraft(answer)
      const refusal = refusalOf(answer, draft, surveyId)
      if (refusal !== undefined) throw new ServiceError(ErrorReason.INVALID_ARGUMENT, `answers[${at}]: ${refusal}`)
      return draft
    })
    const result = await deps.store.putAnswers(Number(surveyId), drafts, deps.now(), causeOf(call))
    if (result.kind === 'not_found') throw new ServiceError(ErrorReason.NOT_FOUND, `there is no survey ${surveyId}`)
    if (result.kind !== 'stored') throw refused(result)
    return { answerIds: result.answerIds.map(BigInt), alreadyStored: result.alreadyStored }
  }
}

function refused({ kind, answerId }: AnswersRefused): ServiceError {
  return kind === 'taken'
    ? new ServiceError(ErrorReason.ALREADY_EXISTS, `answer ${answerId} is stored already, and differs`)
    : new ServiceError(
        ErrorReason.INVALID_ARGUMENT,
        `there is no answer ${answerId}, but one with a higher id: a lower one cannot be added any more`,
      )
}

/** The answer as it will be stored. */
export function toDraft(answer: Answer): AnswerDraft {
  const { startTime, endTime } = answer
  const document: Answer = {
    ...answer,
    answerId: 0n,
    surveyId: 0n,
    ...(startTime && { startTime: toTheSecond(startTime) }),
    ...(endTime && { endTime: toTheSecond(endTime) }),
  }
  return {
    answerId: Number(answer.answerId),
    endSeconds: Number(endTime?.seconds ?? 0n),
    document: toBinary(AnswerSchema, document),
  }
}

function toTheSecond({ seconds }: Timestamp): Timestamp {
  return create(TimestampSchema, { seconds })
}

/** Why an answer cannot be stored, for a person, where the rules of the proto cannot tell; undefined if it can. */
export function refusalOf(answer: Answer, { document }: AnswerDraft, surveyId: bigint): string | undefined {
  const { startTime, endTime, score } = answer
  if (!endTime) return 'endTime is missing: only what was submitted is an answer'
  if (answer.surveyId !== 0n && answer.surveyId !== surveyId) return `is to survey ${answer.surveyId}`
  if ((startTime?.seconds ?? 0n) < 0n) return 'startTime is before 1970'
  if (endTime.seconds < 0n) return 'endTime is before 1970'
  if (startTime && endTime.seconds < startTime.seconds) return 'endTime is before startTime'
  if (score !== undefined && !Number.isFinite(score)) return 'score is no finite number'
  const questions = answer.pages.flatMap((page) => page.questions)
  if (elementsIn(questions) > MAX_ANSWER_ELEMENTS)
    return `at most ${MAX_ANSWER_ELEMENTS} questions, options, groups and blanks`
  const bad = questions.find((question) => !hasWholeStars(question))
  if (bad) return `question ${bad.id}: what was answered to ${bad.type} must be a whole number`
  return document.length > MAX_ANSWER_BYTES ? `at most ${MAX_ANSWER_BYTES} bytes encoded` : undefined
}

function elementsIn(questions: readonly AnsweredQuestion[]): number {
  return questions.reduce((sum, { options, groups, blanks }) => {
    const inGroups = groups.reduce((all, group) => all + group.options.length, 0)
    return sum + 1 + options.length + groups.length + inGroups + blanks.length
  }, 0)
}

const STARS: Readonly<Record<string, (question: AnsweredQuestion) => readonly string[]>> = {
  star: ({ text }) => [text],
  nps: ({ text }) => [text],
  matrix_star: ({ groups }) => groups.map(({ text }) => text),
}

function hasWholeStars(question: AnsweredQuestion): boolean {
  return (STARS[question.type]?.(question) ?? []).every((text) => /^\d{0,4}$/.test(text))
}
