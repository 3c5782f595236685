import type { MessageInitShape } from '@bufbuild/protobuf'
import { timestampFromMs } from '@bufbuild/protobuf/wkt'
import type {
  ListSurveyEventsRequest,
  ListSurveyEventsResponseSchema,
  SurveyEventSchema,
} from '../../gen/surveyauth/v1/survey_service_pb.js'
import { pageOf } from '../storage/page.js'
import type { SurveyDeps } from './deps.js'
import type { SurveyEventRow } from './store/survey-event.js'

/** The audit trail of surveys, newest first. */
export function listSurveyEvents(deps: SurveyDeps) {
  return async (request: ListSurveyEventsRequest): Promise<MessageInitShape<typeof ListSurveyEventsResponseSchema>> => {
    const { ownerUserId, surveyId } = request
    const filter = {
      ...(ownerUserId !== '' && { ownerUserId }),
      ...(surveyId !== 0n && { surveyId: Number(surveyId) }),
    }
    const { rows, next } = await deps.store.listEvents(filter, pageOf(request))
    return { events: rows.map(toEvent), nextPageToken: next ?? '' }
  }
}

function toEvent(row: SurveyEventRow): MessageInitShape<typeof SurveyEventSchema> {
  return {
    eventId: row.eventId,
    createTime: timestampFromMs(row.atMs),
    kind: row.kind,
    actor: row.actor,
    actorId: row.actorId,
    actorSource: row.actorSource,
    requestId: row.requestId,
    surveyId: BigInt(row.surveyId),
    ownerUserId: row.ownerUserId,
    appid: row.appid,
    firstAnswerId: BigInt(row.firstAnswerId),
    lastAnswerId: BigInt(row.lastAnswerId),
  }
}
