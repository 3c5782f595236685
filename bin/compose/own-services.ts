// Services of this process, as its own gateway calls them. It keeps their answers under leases, as gateways elsewhere do:
// finding one that still holds costs less than a call, even without a message.
import type { Client } from '@connectrpc/connect'
import { SurveyService } from '../../gen/surveyauth/v1/survey_service_pb.js'
import { TokenService } from '../../gen/surveyauth/v1/token_service_pb.js'
import { HeldLease } from '../../services/answers/held-lease.js'
import { keepingAnswers } from '../../services/answers/kept-answers.js'
import { clientOf } from '../../services/rpc/client.js'
import { createDirectDoor } from '../../services/rpc/direct-door.js'
import type { Dispatcher } from '../../services/rpc/dispatcher.js'
import type { Config } from '../config.js'
import { type KeepingSetup, REVALIDATE } from './remote.js'

export interface OwnServices {
  readonly token?: Client<typeof TokenService>
  readonly survey?: Client<typeof SurveyService>
}

/** Clients that keep answers, for the services that grant leases: those on SQLite. */
export function ownServices(
  dispatcher: Dispatcher,
  { tokenDatabase, surveyDatabase }: Config,
  { leaseWorthWanted, ...keeping }: KeepingSetup,
): OwnServices {
  if (tokenDatabase.kind !== 'sqlite') return {}
  const asGateway = createDirectDoor(dispatcher, 'gateway')
  const leases = [new HeldLease(createDirectDoor(dispatcher, 'local'), leaseWorthWanted)]
  const keepingOf = (service: keyof typeof REVALIDATE) =>
    keepingAnswers(asGateway, REVALIDATE[service], { ...keeping, leases })
  const token = clientOf(TokenService, keepingOf('token'))
  if (surveyDatabase.kind !== 'sqlite') return { token }
  return { token, survey: clientOf(SurveyService, keepingOf('survey')) }
}
