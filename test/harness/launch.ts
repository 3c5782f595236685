// The ways to run a service in this process, each with everything that operators would run in processes of their own.
import path from 'node:path'
import type { Mode as ProcessMode } from '../../bin/compose/addresses.js'
import type { Overrides, Running } from '../../bin/compose/running.js'
import { start } from '../../bin/compose/start.js'
import { type Config, readConfig } from '../../bin/config.js'
import { AccountService } from '../../gen/surveyauth/v1/account_service_pb.js'
import { AdminService } from '../../gen/surveyauth/v1/admin_service_pb.js'
import { SignInService } from '../../gen/surveyauth/v1/sign_in_service_pb.js'
import { SurveyService } from '../../gen/surveyauth/v1/survey_service_pb.js'
import { TokenService } from '../../gen/surveyauth/v1/token_service_pb.js'
import { borrowMigratedDatabase } from '../postgres/shared-cluster.js'
import type { Clock } from './clock.js'
import { collectLog } from './collect-log.js'
import { balance } from './http.js'
import type { Mode } from './mode.js'
import { postgresSabotage, type Sabotage, sqliteSabotage } from './sabotage.js'
import type { Backend } from './verbs.js'

export interface Launch {
  readonly dataDir: string
  readonly env: Readonly<Record<string, string>>
  readonly clock: Clock
  readonly overrides: Overrides
}

export const launchers: Record<Mode, (launch: Launch) => Promise<Backend>> = {
  'all-in-one': launchAllInOne,
  separate: launchSeparate,
  'two-of-each': launchTwoOfEach,
}

/** Starts one process of a service; `env` adds to the service's variables. */
type StartProcess = (mode: ProcessMode, env?: Readonly<Record<string, string>>) => Promise<Running>

/** The processes of each kind; an all-in-one process is of every kind. */
interface Arranged {
  readonly gateways: readonly Running[]
  readonly tokens: readonly Running[]
  readonly surveys: readonly Running[]
  readonly sabotage: Sabotage
  /** After the processes are closed. */
  tidyUp?(): Promise<void>
}

function launchAllInOne(launch: Launch): Promise<Backend> {
  return backendOf(launch, async (startProcess) => {
    const all = await startProcess('all')
    return { gateways: [all], tokens: [all], surveys: [all], sabotage: sqliteSabotage(launch.dataDir) }
  })
}

/** Gateway, TokenService and SurveyService arranged as three processes, joined by sockets in DATA_DIR; any start order. */
function launchSeparate(launch: Launch): Promise<Backend> {
  return backendOf(launch, async (startProcess) => {
    const gateway = await startProcess('gateway')
    const survey = await startProcess('survey')
    const token = await startProcess('token')
    return { gateways: [gateway], tokens: [token], surveys: [survey], sabotage: sqliteSabotage(launch.dataDir) }
  })
}

/**
 * Two of each on one PostgreSQL database. Requests go to the gateways in turn, and calls to both of each service, so that state
 * known to one process only shows at once.
 */
function launchTwoOfEach(launch: Launch): Promise<Backend> {
  return backendOf(launch, async (startProcess) => {
    const database = await borrowMigratedDatabase()
    const socket = (name: string) => `unix:${path.join(launch.dataDir, `${name}.sock`)}`
    const databases = { TOKEN_DATABASE_URL: database.url, SURVEY_DATABASE_URL: database.url }
    const token = (n: number) => startProcess('token', { ...databases, RPC_LISTEN: socket(`token${n}`) })
    const both = (name: string) => `${socket(`${name}1`)},${socket(`${name}2`)}`
    const services = { TOKEN_SERVICE_URL: both('token'), SURVEY_SERVICE_URL: both('survey') }
    const survey = (n: number) => {
      const addresses = { RPC_LISTEN: socket(`survey${n}`), TOKEN_SERVICE_URL: both('token') }
      return startProcess('survey', { ...databases, ...addresses })
    }
    const gateway = (env = {}) => startProcess('gateway', { ...services, ...env })
    const first = await gateway()
    const [second, survey1, survey2, token1, token2] = await Promise.all([
      gateway({ PUBLIC_URL: launch.env.PUBLIC_URL ?? first.url }),
      survey(1),
      survey(2),
      token(1),
      token(2),
    ])
    balance(first.url, [first.url, second.url])
    return {
      gateways: [first, second],
      tokens: [token1, token2],
      surveys: [survey1, survey2],
      sabotage: postgresSabotage(database.url),
      tidyUp: database.giveBack,
    }
  })
}

async function backendOf(
  { env, clock, overrides }: Launch,
  arrange: (startProcess: StartProcess) => Promise<Arranged>,
): Promise<Backend> {
  const { logStream, lines } = collectLog()
  const startProcess: StartProcess = (mode, own = {}) =>
    start(mode, readConfig({ ...env, ...own }), { ...overrides, now: clock.now, elapsed: clock.elapsed, logStream })
  const { gateways, tokens, surveys, sabotage, tidyUp } = await arrange(startProcess)
  const [gateway, token, survey] = [gateways.at(0), tokens.at(-1), surveys.at(-1)]
  if (!gateway || !token || !survey) throw new Error('a service has at least one process of each kind')
  return {
    url: gateway.url,
    gateways: gateways.length,
    sabotage,
    adminUrl: gateway.adminUrl,
    clock,
    httpErrorStatus: errorStatusOf(readConfig(env)),
    admin: token.client(AdminService, 'operator'),
    survey: survey.client(SurveyService, 'operator'),
    token: token.client(TokenService, 'verifier'),
    signIn: token.client(SignInService, 'sign_in'),
    asGateway: {
      token: gateway.client(TokenService, 'gateway'),
      account: gateway.client(AccountService, 'gateway'),
    },
    log: () => lines.join(''),
    async runJanitors() {
      for (const process of new Set([...tokens, ...surveys])) await process.runJanitors()
    },
    async close() {
      for (const kind of [gateways, surveys, tokens]) await Promise.all(kind.map((running) => running.close()))
      await tidyUp?.()
    },
  }
}

function errorStatusOf({ httpErrorStatus }: Config): Backend['httpErrorStatus'] {
  return httpErrorStatus === 200 ? '200' : 'semantic'
}
