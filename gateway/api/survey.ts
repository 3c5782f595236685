import { successBytes } from '../answer.js'
import type { Route } from '../http.js'
import { MAX_ID_LENGTH, readId } from '../query.js'
import { surveyBytes } from './survey-to-json.js'

/** One survey in full (spec 4.5). An `openid` is checked if sent (decisions 28). */
export const surveyRoute: Route = {
  name: 'survey',
  method: 'GET',
  path: '/api/surveys/:id',
  kind: 'api',
  async answer(request, deps) {
    const query = request.query()
    const appid = query.required('appid', MAX_ID_LENGTH)
    const accessToken = query.credential('access_token')
    const openid = query.optional('openid', MAX_ID_LENGTH)
    const surveyId = readId('survey_id', request.pathParameters[0])

    const found = await deps.survey.getSurvey(
      {
        $typeName: 'surveyauth.v1.GetSurveyRequest',
        appid,
        accessToken,
        surveyId: BigInt(surveyId),
        openid,
      },
      request.rpc,
    )
    if (!found.survey) throw new Error('the answer of GetSurvey holds no survey')
    return successBytes(surveyBytes(found.survey, Number(found.creatorUserId)), request.requestId)
  },
}

/** The same at the path that published clients of this dialect know (decisions 26). */
export const legacySurveyRoute: Route = { ...surveyRoute, path: '/api/surveys/:id/legacy' }
