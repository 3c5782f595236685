import type { MessageInitShape } from '@bufbuild/protobuf'
import type { Timestamp } from '@bufbuild/protobuf/wkt'
import type { Answer } from '../../gen/surveyauth/v1/answer_pb.js'
import { ErrorReason } from '../../gen/surveyauth/v1/error_pb.js'
import type {
  GetAnswerRequest,
  GetAnswerResponseSchema,
  ListAnswersRequest,
  ListAnswersResponseSchema,
} from '../../gen/surveyauth/v1/survey_service_pb.js'
import { Permission } from '../../gen/surveyauth/v1/token_service_pb.js'
import type { Call } from '../rpc/dispatcher.js'
import { ServiceError } from '../rpc/service-error.js'
import type { AnswerDeps } from './deps.js'
import type { AnswerPage, Interval } from './store/answer-store.js'
import { verify } from './verify.js'

const DEFAULT_PAGE_SIZE = 100
const MAX_PAGE_SIZE = 1000
/** Of documents: with the last one, less than the 4 MiB that gRPC clients accept. */
const MAX_PAGE_BYTES = 3_500_000
const END_OF_TIME = 253_402_300_800 // the first second after what a Timestamp allows

/** Answers to a survey of the token's user, ascending by id. */
export function listAnswers(deps: AnswerDeps) {
  return async (
    request: ListAnswersRequest,
    call: Call,
  ): Promise<MessageInitShape<typeof ListAnswersResponseSchema>> => {
    const user = await verify(deps, request, call, Permission.READ_ANSWERS)
    const found = await deps.answers.listAnswers(user, Number(request.surveyId), pageOf(request), call)
    if (!found) throw new ServiceError(ErrorReason.SURVEY_NOT_FOUND, 'there is no such survey of this user')
    const answers = await handedOut(deps, request, call, user.userId, found.answers)
    return { answers, totalSize: BigInt(found.total) }
  }
}

/** One of them. */
export function getAnswer(deps: AnswerDeps) {
  return async (request: GetAnswerRequest, call: Call): Promise<MessageInitShape<typeof GetAnswerResponseSchema>> => {
    const user = await verify(deps, request, call, Permission.READ_ANSWERS)
    const found = await deps.answers.findAnswer(user, Number(request.surveyId), Number(request.answerId), call)
    if (!found) throw new ServiceError(ErrorReason.SURVEY_NOT_FOUND, 'there is no such answer to a survey of this user')
    const [answer] = await handedOut(deps, request, call, user.userId, [found])
    return { answer }
  }
}

/** The answers as the app gets them, once it is recorded that it does. */
async function handedOut(
  { respondents, reads, now }: AnswerDeps,
  { appid, surveyId }: ListAnswersRequest | GetAnswerRequest,
  { requestId }: Call,
  ownerUserId: string,
  answers: readonly Answer[],
): Promise<Answer[]> {
  const [first, last] = [answers[0], answers.at(-1)]
  if (!first || !last) return []
  const ids = { firstId: Number(first.answerId), lastId: Number(last.answerId) }
  await reads.record({ appid, surveyId: Number(surveyId), ownerUserId, requestId, ...ids }, now())
  const pseudonymOf = await respondents.asSeenBy(appid)
  return answers.map((answer) => ({ ...answer, respondentId: pseudonymOf(answer.respondentId) }))
}

/** Which answers are asked for. */
export function pageOf(
  request: Pick<ListAnswersRequest, 'pageSize' | 'afterAnswerId' | 'since' | 'until'>,
): AnswerPage {
  const { pageSize, afterAnswerId, since, until } = request
  return {
    afterId: Number(afterAnswerId),
    limit: Math.min(pageSize || DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE),
    maxBytes: MAX_PAGE_BYTES,
    interval: since || until ? intervalOf(since, until) : undefined,
  }
}

function intervalOf(since: Timestamp | undefined, until: Timestamp | undefined): Interval {
  const from = since ? Math.max(0, secondsAt(since)) : 0
  return { since: from, until: until ? Math.max(from, secondsAt(until)) : END_OF_TIME }
}

/** The first whole second at or after it. */
function secondsAt({ seconds, nanos }: Timestamp): number {
  return Number(seconds) + (nanos > 0 ? 1 : 0)
}
