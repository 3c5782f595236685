// SurveyService: owns surveys and the answers to them, or asks the provider of a platform for surveys. Reads verify the access token
// with TokenService; imports, deletions and exports are for operators and the services that write surveys. It knows nothing of HTTP,
// codes or sessions.
import { Code, ConnectError } from '@connectrpc/connect'
import { ErrorReason } from '../../gen/surveyauth/v1/error_pb.js'
import type { GetAnswerRequest, ListAnswersRequest, SurveyService } from '../../gen/surveyauth/v1/survey_service_pb.js'
import { Permission } from '../../gen/surveyauth/v1/token_service_pb.js'
import type { Call, Handlers } from '../rpc/dispatcher.js'
import { ServiceError } from '../rpc/service-error.js'
import { deleteAnswers } from './delete-answers.js'
import { deleteSurveys } from './delete-surveys.js'
import type { AnswerDeps, ReadDeps, SurveyDeps } from './deps.js'
import { exportAnswers } from './export-answers.js'
import { exportSurveys } from './export-surveys.js'
import { getSurvey } from './get-survey.js'
import { importAnswers } from './import-answers.js'
import { importSurveys } from './import-surveys.js'
import { getAnswer, listAnswers } from './list-answers.js'
import { listSurveyEvents } from './list-survey-events.js'
import { listSurveys } from './list-surveys.js'
import { storedAnswers, storedSurveys } from './stored-surveys.js'
import { verify } from './verify.js'

/** Over our own database. */
export function createSurveyHandlers(deps: SurveyDeps & Omit<AnswerDeps, 'answers'>): Handlers<typeof SurveyService> {
  const answerDeps = { ...deps, answers: storedAnswers(deps.store) }
  return {
    ...reads({ surveys: storedSurveys(deps.store), token: deps.token }),
    listAnswers: listAnswers(answerDeps),
    getAnswer: getAnswer(answerDeps),
    importAnswers: importAnswers(deps),
    exportAnswers: exportAnswers(deps),
    deleteAnswers: deleteAnswers(deps),
    importSurveys: importSurveys(deps),
    deleteSurveys: deleteSurveys(deps),
    exportSurveys: exportSurveys(deps),
    listSurveyEvents: listSurveyEvents(deps),
  }
}

export interface ProvidedDeps extends ReadDeps {
  /** undefined unless the provider has answers. @throws StoreUnavailable when what is kept about them here cannot be */
  readonly answering: () => Promise<(AnswerDeps & SurveyDeps) | undefined>
}

/**
 * Over a provider, at which alone surveys and answers are changed. Kept here is what must be about answers that apps read: the key of
 * respondents' pseudonyms, and the audit events.
 */
export function createProvidedSurveyHandlers(deps: ProvidedDeps): Handlers<typeof SurveyService> {
  const { answering } = deps
  const refuse = async () => {
    throw surveysAreElsewhere()
  }
  const noAnswers = async (request: ListAnswersRequest | GetAnswerRequest, call: Call): Promise<never> => {
    await verify(deps, request, call, Permission.READ_ANSWERS)
    throw new ServiceError(ErrorReason.SURVEY_NOT_FOUND, 'the survey provider has no answers')
  }
  return {
    ...reads(deps),
    async listAnswers(request, call) {
      const able = await answering()
      return able ? listAnswers(able)(request, call) : noAnswers(request, call)
    },
    async getAnswer(request, call) {
      const able = await answering()
      return able ? getAnswer(able)(request, call) : noAnswers(request, call)
    },
    importAnswers: refuse,
    exportAnswers: refuse,
    deleteAnswers: refuse,
    importSurveys: refuse,
    deleteSurveys: refuse,
    exportSurveys: refuse,
    async listSurveyEvents(request) {
      const able = await answering()
      return able ? listSurveyEvents(able)(request) : {}
    },
  }
}

export function surveysAreElsewhere(): ConnectError {
  const text = 'surveys are read from SURVEY_PROVIDER_URL: import, change, list and delete them where they are'
  return new ConnectError(text, Code.FailedPrecondition)
}

function reads(deps: ReadDeps) {
  return { getSurvey: getSurvey(deps), listSurveys: listSurveys(deps) }
}
