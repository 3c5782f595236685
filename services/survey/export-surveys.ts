import type { MessageInitShape } from '@bufbuild/protobuf'
import { ErrorReason } from '../../gen/surveyauth/v1/error_pb.js'
import type { ExportSurveysRequest, ExportSurveysResponseSchema } from '../../gen/surveyauth/v1/survey_service_pb.js'
import { ServiceError } from '../rpc/service-error.js'
import type { SurveyDeps } from './deps.js'
import { toSurvey } from './get-survey.js'

const MAX_PAGE_SIZE = 100
const PAGE_TOKEN = /^\d*$/
/** Of documents: even with the last one, far less than the 64 MiB that our own processes accept as an answer. */
const MAX_PAGE_BYTES = 8 * 1024 * 1024

/** Surveys in full, ascending by id. The page token is the last id of the page before. */
export function exportSurveys(deps: SurveyDeps) {
  return async (request: ExportSurveysRequest): Promise<MessageInitShape<typeof ExportSurveysResponseSchema>> => {
    const limit = Math.min(request.pageSize || MAX_PAGE_SIZE, MAX_PAGE_SIZE)
    const afterId = Number(request.pageToken)
    if (!PAGE_TOKEN.test(request.pageToken) || !Number.isSafeInteger(afterId))
      throw new ServiceError(ErrorReason.INVALID_ARGUMENT, 'the page token is not valid')
    const page = { afterId, limit, maxBytes: MAX_PAGE_BYTES }
    const rows = await deps.store.exportSurveys(request.ownerUserId || undefined, page)
    const bytes = rows.reduce((sum, { document }) => sum + document.length, 0)
    const last = rows.length === limit || bytes >= MAX_PAGE_BYTES ? rows.at(-1) : undefined
    return {
      surveys: rows.map((row) => ({ ownerUserId: row.ownerUserId, survey: toSurvey(row) })),
      nextPageToken: last ? String(last.surveyId) : '',
    }
  }
}
