// The tests' way to a running service. `startService` gives one to a single test, on an empty store and a clock moved by
// hand; `openService` leaves closing to the caller, for tables that share one.
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { Writable } from 'node:stream'
import { onTestFinished } from 'vitest'
import type { Mode as ProcessMode } from '../bin/compose/mode.js'
import { type Overrides, type Running, start } from '../bin/compose/start.js'
import { readConfig } from '../bin/config.js'
import { AccountService } from '../gen/surveyauth/v1/account_service_pb.js'
import { AdminService } from '../gen/surveyauth/v1/admin_service_pb.js'
import { SurveyService } from '../gen/surveyauth/v1/survey_service_pb.js'
import { TokenService } from '../gen/surveyauth/v1/token_service_pb.js'
import { Clock } from './harness/clock.js'
import { type Backend, Verbs } from './harness/verbs.js'

export interface ServiceOptions {
  /** Variables of the operating contract, over the defaults of tests. */
  readonly env?: Readonly<Record<string, string>>
  /** Passwords hashed at their production cost, where time matters; else as cheaply as argon2id allows. */
  readonly isPasswordCostReal?: boolean
  /** A directory that its caller removes, and the clock: for a service that is closed and opened again. */
  readonly place?: { readonly dataDir: string; readonly clock: Clock }
}

interface Launch {
  readonly dataDir: string
  readonly env: Readonly<Record<string, string>>
  readonly clock: Clock
  readonly overrides: Overrides
}

/** How the processes of a service are arranged; the suites run unchanged in every mode. */
const modes = { 'all-in-one': launchAllInOne, separate: launchSeparate } satisfies Record<
  string,
  (launch: Launch) => Promise<Backend>
>
export type Mode = keyof typeof modes

/** The vitest project decides: every black-box suite runs once in each mode. */
export const mode: Mode = process.env.SURVEY_AUTH_TEST_MODE === 'separate' ? 'separate' : 'all-in-one'

const LEAST_PASSWORD_COST = { memoryCost: 8, timeCost: 1 }
const TEST_ENV = {
  PORT: '0',
  ADMIN_PORT: '0',
  RATE_LIMIT: 'off',
  LOG_LEVEL: 'debug',
  RPC_TIMEOUT_MS: '30000', // on a busy machine the default would turn slowness into 503
}

/** An empty service for this test, closed when it ends. */
export async function startService(options: ServiceOptions = {}): Promise<Verbs> {
  const service = await openService(options)
  onTestFinished(() => service.backend.close())
  return service
}

/** A service that the caller closes, empty unless its place is not. */
export async function openService(options: ServiceOptions = {}): Promise<Verbs> {
  const dataDir = options.place?.dataDir ?? (await mkdtemp(path.join(tmpdir(), 'survey-auth-test-')))
  const env = { ...TEST_ENV, DATA_DIR: dataDir, ...options.env }
  const overrides = options.isPasswordCostReal ? {} : { passwordCost: LEAST_PASSWORD_COST }
  const backend = await modes[mode]({ dataDir, env, clock: options.place?.clock ?? new Clock(), overrides })
  const close = async () => {
    await backend.close()
    if (options.place === undefined) await rm(dataDir, { recursive: true, force: true })
  }
  return new Verbs({ ...backend, close })
}

function launchAllInOne(launch: Launch): Promise<Backend> {
  return backendOf(launch, async (startMode) => {
    const all = await startMode('all')
    return { gateway: all, token: all, survey: all }
  })
}

/** Gateway, TokenService and SurveyService as three processes are, joined by sockets in DATA_DIR; any start order. */
function launchSeparate(launch: Launch): Promise<Backend> {
  return backendOf(launch, async (startMode) => {
    const gateway = await startMode('gateway')
    const survey = await startMode('survey')
    const token = await startMode('token')
    return { gateway, survey, token }
  })
}

async function backendOf(
  { dataDir, env, clock, overrides }: Launch,
  launch: (
    startMode: (mode: ProcessMode) => Promise<Running>,
  ) => Promise<Record<'gateway' | 'token' | 'survey', Running>>,
): Promise<Backend> {
  const lines: string[] = []
  const logStream = new Writable({
    write(chunk: Buffer, _encoding, done) {
      lines.push(chunk.toString('utf8'))
      done()
    },
  })
  const config = readConfig(env)
  const { gateway, token, survey } = await launch((startMode) =>
    start(startMode, config, { ...overrides, now: clock.now, logStream }),
  )
  return {
    url: gateway.url,
    adminUrl: gateway.adminUrl,
    dataDir,
    clock,
    httpErrorStatus: config.httpErrorStatus === 200 ? '200' : 'semantic',
    admin: token.client(AdminService, 'operator'),
    survey: survey.client(SurveyService, 'operator'),
    token: token.client(TokenService, 'verifier'),
    asGateway: {
      token: gateway.client(TokenService, 'gateway'),
      account: gateway.client(AccountService, 'gateway'),
    },
    log: () => lines.join(''),
    runJanitor: token.runJanitor,
    async close() {
      for (const running of new Set([gateway, survey, token])) await running.close()
    },
  }
}
