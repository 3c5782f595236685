import { timestampFromMs } from '@bufbuild/protobuf/wkt'
import type { Answer } from '../../gen/surveyauth/v1/answer_pb.js'
import { jsonBytes, successBytes } from '../answer.js'
import { invalidArgument } from '../errors.js'
import type { Route } from '../http.js'
import { MAX_ID_LENGTH, type Params, readCount, readId } from '../query.js'
import { answerToJson } from './answer-to-json.js'
import { MAX_UNIX_SECONDS } from './survey-to-json.js'

const DEFAULT_PER_PAGE = 20
const MAX_PER_PAGE = 1000
/** Of a list: fewer answers than asked for are sent when they are large, but one at least. */
const MAX_LIST_BYTES = 4_000_000

/** The answers to a survey, ascending by id (decisions 51). */
export const answersRoute: Route = {
  name: 'answers',
  method: 'GET',
  path: '/api/surveys/:id/answers',
  kind: 'api',
  async answer(request, deps) {
    const query = request.query()
    const presented = readPresented(query)
    const pageSize = readCount(query, 'per_page', DEFAULT_PER_PAGE, MAX_PER_PAGE)
    const lastAnswerId = readWhole(query, 'last_answer_id', Number.MAX_SAFE_INTEGER) ?? 0
    const [since, until] = [readWhole(query, 'since', MAX_UNIX_SECONDS), readWhole(query, 'until', MAX_UNIX_SECONDS)]
    const surveyId = readId('survey_id', request.pathParameters[0])

    const found = await deps.survey.listAnswers(
      {
        $typeName: 'surveyauth.v1.ListAnswersRequest',
        ...presented,
        surveyId: BigInt(surveyId),
        afterAnswerId: BigInt(lastAnswerId),
        pageSize,
        ...(since !== undefined && { since: timestampFromMs(since * 1000) }),
        ...(until !== undefined && { until: timestampFromMs(until * 1000) }),
      },
      request.rpc,
    )
    const list = upToMaxBytes(found.answers)
    const last = found.answers[list.length - 1]?.answerId ?? lastAnswerId
    const data = `{"total":${found.totalSize},"last_answer_id":${last},"list":[${list.join(',')}]}`
    return successBytes(data, request.requestId)
  },
}

/** One answer to a survey. */
export const answerRoute: Route = {
  name: 'answer',
  method: 'GET',
  path: '/api/surveys/:id/answers/:id',
  kind: 'api',
  async answer(request, deps) {
    const presented = readPresented(request.query())
    const surveyId = readId('survey_id', request.pathParameters[0])
    const answerId = readId('answer_id', request.pathParameters[1])

    const { answer } = await deps.survey.getAnswer(
      {
        $typeName: 'surveyauth.v1.GetAnswerRequest',
        ...presented,
        surveyId: BigInt(surveyId),
        answerId: BigInt(answerId),
      },
      request.rpc,
    )
    if (!answer) throw new Error('the answer of GetAnswer holds no answer')
    return successBytes(answerBytes(answer), request.requestId)
  },
}

function readPresented(query: Params) {
  return {
    appid: query.required('appid', MAX_ID_LENGTH),
    accessToken: query.credential('access_token'),
    openid: query.optional('openid', MAX_ID_LENGTH),
  }
}

/** From 0 to `max`; undefined when absent or empty. @throws Problem for anything else: a cursor that is ignored would go on for ever. */
function readWhole(query: Params, name: string, max: number): number | undefined {
  const text = query.optional(name, Number.POSITIVE_INFINITY) // the URL's length bounds it
  if (text === '') return undefined
  const value = /^(0|[1-9]\d*)$/.test(text) ? Number(text) : Number.NaN
  if (value <= max) return value
  throw invalidArgument(`${name} must be an integer from 0 to ${max}`)
}

function answerBytes(answer: Answer): string {
  return jsonBytes(answerToJson(answer, Number(answer.respondentId)))
}

function upToMaxBytes(answers: readonly Answer[]): string[] {
  const list: string[] = []
  let bytes = 0
  for (const answer of answers) {
    const text = answerBytes(answer)
    bytes += text.length
    if (list.length > 0 && bytes > MAX_LIST_BYTES) break
    list.push(text)
  }
  return list
}
