// SurveyService: owns surveys. Reads verify the access token with TokenService; imports, deletions and exports are
// for operators and the services that write surveys. It knows nothing of HTTP, codes or sessions.
import type { SurveyService } from '../../gen/surveyauth/v1/survey_service_pb.js'
import type { Handlers } from '../rpc/dispatcher.js'
import { deleteSurveys } from './delete-surveys.js'
import type { SurveyDeps } from './deps.js'
import { exportSurveys } from './export-surveys.js'
import { getSurvey } from './get-survey.js'
import { importSurveys } from './import-surveys.js'
import { listSurveyEvents } from './list-survey-events.js'
import { listSurveys } from './list-surveys.js'

export function createSurveyHandlers(deps: SurveyDeps): Handlers<typeof SurveyService> {
  return {
    getSurvey: getSurvey(deps),
    listSurveys: listSurveys(deps),
    importSurveys: importSurveys(deps),
    deleteSurveys: deleteSurveys(deps),
    exportSurveys: exportSurveys(deps),
    listSurveyEvents: listSurveyEvents(deps),
  }
}
