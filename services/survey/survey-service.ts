// SurveyService: owns surveys, or asks the provider of a platform for them. Reads verify the access token with TokenService;
// imports, deletions and exports are for operators and the services that write surveys. It knows nothing of HTTP, codes or sessions.
import { Code, ConnectError } from '@connectrpc/connect'
import type { SurveyService } from '../../gen/surveyauth/v1/survey_service_pb.js'
import type { Handlers } from '../rpc/dispatcher.js'
import { deleteSurveys } from './delete-surveys.js'
import type { ReadDeps, SurveyDeps } from './deps.js'
import { exportSurveys } from './export-surveys.js'
import { getSurvey } from './get-survey.js'
import { importSurveys } from './import-surveys.js'
import { listSurveyEvents } from './list-survey-events.js'
import { listSurveys } from './list-surveys.js'
import { storedSurveys } from './stored-surveys.js'

/** Over our own database. */
export function createSurveyHandlers(deps: SurveyDeps & Pick<ReadDeps, 'token'>): Handlers<typeof SurveyService> {
  return {
    ...reads({ surveys: storedSurveys(deps.store), token: deps.token }),
    importSurveys: importSurveys(deps),
    deleteSurveys: deleteSurveys(deps),
    exportSurveys: exportSurveys(deps),
    listSurveyEvents: listSurveyEvents(deps),
  }
}

/** Over a provider, at which alone surveys are changed: we keep none, and have no events of them. */
export function createProvidedSurveyHandlers(deps: ReadDeps): Handlers<typeof SurveyService> {
  const refuse = async () => {
    throw surveysAreElsewhere()
  }
  return {
    ...reads(deps),
    importSurveys: refuse,
    deleteSurveys: refuse,
    exportSurveys: refuse,
    listSurveyEvents: async () => ({}),
  }
}

export function surveysAreElsewhere(): ConnectError {
  const text = 'surveys are read from SURVEY_PROVIDER_URL: import, change, list and delete them where they are'
  return new ConnectError(text, Code.FailedPrecondition)
}

function reads(deps: ReadDeps) {
  return { getSurvey: getSurvey(deps), listSurveys: listSurveys(deps) }
}
