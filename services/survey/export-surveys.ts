import type { MessageInitShape } from '@bufbuild/protobuf'
import { ErrorReason } from '../../gen/surveyauth/v1/error_pb.js'
import {
  type ExportSurveysRequest,
  type ExportSurveysResponseSchema,
  SurveyView,
} from '../../gen/surveyauth/v1/survey_service_pb.js'
import { ServiceError } from '../rpc/service-error.js'
import type { SurveyDeps } from './deps.js'
import { toSurvey } from './stored-surveys.js'

const MAX_PAGE_SIZE = 100
const PAGE_TOKEN = /^\d*$/
/** Of documents: even with the last one, far less than the 64 MiB that our own processes accept as an answer. */
const MAX_PAGE_BYTES = 8 * 1024 * 1024

/** Surveys ascending by id, in full unless less is asked for. The page token is the last id of the page before. */
export function exportSurveys(deps: SurveyDeps) {
  return async (request: ExportSurveysRequest): Promise<MessageInitShape<typeof ExportSurveysResponseSchema>> => {
    const limit = Math.min(request.pageSize || MAX_PAGE_SIZE, MAX_PAGE_SIZE)
    const afterId = Number(request.pageToken)
    if (!PAGE_TOKEN.test(request.pageToken) || !Number.isSafeInteger(afterId))
      throw new ServiceError(ErrorReason.INVALID_ARGUMENT, 'the page token is not valid')
    const owner = request.ownerUserId || undefined
    if (request.surveyId !== 0n) {
      const row = await deps.store.findSurvey(Number(request.surveyId))
      const isAsked = row && (owner ?? row.ownerUserId) === row.ownerUserId
      return { surveys: isAsked ? [{ ownerUserId: row.ownerUserId, survey: toSurvey(row) }] : [] }
    }
    if (request.view === SurveyView.BASIC) {
      const rows = await deps.store.exportSummaries(owner, { afterId, limit })
      const surveys = rows.map(({ ownerUserId, surveyId, hash, title, state }) => {
        return { ownerUserId, survey: { id: BigInt(surveyId), hash, title, state } }
      })
      return { surveys, nextPageToken: tokenAfter(rows, rows.length === limit) }
    }
    const rows = await deps.store.exportSurveys(owner, { afterId, limit, maxBytes: MAX_PAGE_BYTES })
    const bytes = rows.reduce((sum, { document }) => sum + document.length, 0)
    return {
      surveys: rows.map((row) => ({ ownerUserId: row.ownerUserId, survey: toSurvey(row) })),
      nextPageToken: tokenAfter(rows, rows.length === limit || bytes >= MAX_PAGE_BYTES),
    }
  }
}

function tokenAfter(rows: readonly { readonly surveyId: number }[], mayBeMore: boolean): string {
  return mayBeMore ? String(rows.at(-1)?.surveyId ?? '') : ''
}
