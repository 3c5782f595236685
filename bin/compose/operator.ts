// What the command line works through: the services' own RPCs, called as operator. Until there is a network door it opens
// the databases itself, which is safe beside a running server: every call is a transaction, and a server asks the
// database anew on every request.
import { randomBytes, randomUUID } from 'node:crypto'
import { existsSync } from 'node:fs'
import type { Client } from '@connectrpc/connect'
import { AdminService } from '../../gen/surveyauth/v1/admin_service_pb.js'
import { SurveyService } from '../../gen/surveyauth/v1/survey_service_pb.js'
import { readConfig } from '../config.js'
import { createLog } from '../log.js'
import { message } from '../output.js'
import { openServices } from './services.js'

export interface Operator {
  readonly admin: Client<typeof AdminService>
  readonly survey: Client<typeof SurveyService>
}

/** Opens the services for the length of `work`. All its calls have one request id, which the audit trail shows. */
export async function asOperator<T>(work: (operator: Operator) => Promise<T>): Promise<T> {
  const config = readConfig(process.env)
  const log = createLog(config, process.stderr)
  if (!existsSync(config.tokenDatabaseFile)) message(`creating a new database: ${config.tokenDatabaseFile}`)
  const services = await openServices(config, {
    now: Date.now,
    randomBytes,
    onCall: log.call,
    onUnexpected: (error, { method, requestId }) => log.failure(`${method} failed unexpectedly`, error, requestId),
  })
  try {
    const requestId = randomUUID()
    return await work({
      admin: services.client(AdminService, 'operator', requestId),
      survey: services.client(SurveyService, 'operator', requestId),
    })
  } finally {
    await services.close()
  }
}

/** All pages of a list, one after the other. */
export async function allPages<Row>(
  fetchPage: (pageToken: string) => Promise<{ readonly rows: readonly Row[]; readonly nextPageToken: string }>,
): Promise<Row[]> {
  const all: Row[] = []
  let pageToken = ''
  do {
    const page = await fetchPage(pageToken)
    all.push(...page.rows)
    pageToken = page.nextPageToken
  } while (pageToken !== '')
  return all
}
