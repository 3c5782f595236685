// The whole service in one process, with the clients that the demo and the tests work through.
import type { Client } from '@connectrpc/connect'
import { AdminService } from '../../gen/surveyauth/v1/admin_service_pb.js'
import { SurveyService } from '../../gen/surveyauth/v1/survey_service_pb.js'
import { TokenService } from '../../gen/surveyauth/v1/token_service_pb.js'
import type { Config } from '../config.js'
import type { Overrides, Running } from './running.js'
import { start } from './start.js'

export interface AllInOne extends Running {
  /** AdminService and SurveyService as operator, TokenService as verifier. */
  readonly admin: Client<typeof AdminService>
  readonly survey: Client<typeof SurveyService>
  readonly token: Client<typeof TokenService>
}

export async function startAllInOne(config: Config, overrides: Overrides = {}): Promise<AllInOne> {
  const running = await start('all', config, overrides)
  return {
    ...running,
    admin: running.client(AdminService, 'operator'),
    survey: running.client(SurveyService, 'operator'),
    token: running.client(TokenService, 'verifier'),
  }
}
