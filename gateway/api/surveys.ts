import type { SurveySummary } from '../../gen/surveyauth/v1/survey_pb.js'
import type { ListSurveysResponse } from '../../gen/surveyauth/v1/survey_service_pb.js'
import { jsonBytes, successBytes } from '../answer.js'
import type { Route } from '../http.js'
import { MAX_ID_LENGTH, readCount } from '../query.js'
import { jsonStates } from './survey-to-json.js'

const DEFAULT_PER_PAGE = 20
const MAX_PER_PAGE = 100
/** An int32, past the end of any list. */
const MAX_SKIP = 2 ** 31 - 1

/** The user's surveys, ascending by id (spec 4.5, decisions 24 and 25). */
export const surveysRoute: Route = {
  name: 'surveys',
  method: 'GET',
  path: '/api/surveys',
  kind: 'api',
  async answer(request, deps) {
    const query = request.query()
    const appid = query.required('appid', MAX_ID_LENGTH)
    const accessToken = query.credential('access_token')
    const openid = query.required('openid', MAX_ID_LENGTH)
    const page = readCount(query, 'page', 1, MAX_SKIP)
    const perPage = readCount(query, 'per_page', DEFAULT_PER_PAGE, MAX_PER_PAGE)

    const found = await deps.survey.listSurveys(
      {
        $typeName: 'surveyauth.v1.ListSurveysRequest',
        appid,
        accessToken,
        openid,
        pageSize: perPage,
        pageToken: '',
        skip: Math.min((page - 1) * perPage, MAX_SKIP),
      },
      request.rpc,
    )
    return successBytes(listBytes(found), request.requestId)
  },
}

const lists = new WeakMap<readonly SurveySummary[], string>()

/** The list through jsonBytes; kept for rows that come again. */
function listBytes(found: ListSurveysResponse): string {
  const known = lists.get(found.surveys)
  if (known !== undefined) return known
  const list = found.surveys.map(({ id, hash, title, state }) => ({
    id: Number(id),
    hash,
    title,
    state: jsonStates[state],
  }))
  const bytes = jsonBytes({ total: found.totalSize, list })
  lists.set(found.surveys, bytes)
  return bytes
}
