// Puts the services together in this process: stores, handlers, one dispatcher, clients through the direct door.
import { mkdirSync } from 'node:fs'
import path from 'node:path'
import type { DescService } from '@bufbuild/protobuf'
import { type Client, createClient, type Transport } from '@connectrpc/connect'
import { AccountService } from '../../gen/surveyauth/v1/account_service_pb.js'
import { AdminService } from '../../gen/surveyauth/v1/admin_service_pb.js'
import { SurveyService } from '../../gen/surveyauth/v1/survey_service_pb.js'
import { TokenService } from '../../gen/surveyauth/v1/token_service_pb.js'
import { type Caller, mayCall } from '../../services/rpc/callers.js'
import { createDirectTransport } from '../../services/rpc/direct-transport.js'
import { Dispatcher, type DispatcherOptions } from '../../services/rpc/dispatcher.js'
import { REQUEST_ID_HEADER } from '../../services/rpc/request-id.js'
import { openSqliteSurveyStore } from '../../services/survey/store/sqlite/sqlite-survey-store.js'
import type { SurveyStore } from '../../services/survey/store/survey-store.js'
import { createSurveyHandlers } from '../../services/survey/survey-service.js'
import { createPasswordHasher } from '../../services/token/passwords.js'
import { createSignInLimiter, noSignInLimiter } from '../../services/token/sign-in-limiter.js'
import { openSqliteTokenStore } from '../../services/token/store/sqlite/sqlite-token-store.js'
import type { TokenStore } from '../../services/token/store/token-store.js'
import { createTokenHandlers } from '../../services/token/token-service.js'
import { createUseRecorder, type UseRecorder } from '../../services/token/use-recorder.js'
import type { Config } from '../config.js'

export interface ServicesOptions extends Pick<DispatcherOptions, 'onCall' | 'onUnexpected'> {
  readonly now: () => number
  readonly randomBytes: (size: number) => Uint8Array
}

export interface Services {
  readonly tokenStore: TokenStore
  readonly surveyStore: SurveyStore
  readonly uses: UseRecorder
  /** A client whose every call is made as `caller`, for one request if its id is given. */
  client<S extends DescService>(service: S, caller: Caller, requestId?: string): Client<S>
  /** Writes down last uses and closes the databases. */
  close(): Promise<void>
}

/** Opens the databases, creating and migrating them if need be. */
export async function openServices(config: Config, options: ServicesOptions): Promise<Services> {
  const { now, randomBytes } = options
  makePrivateDirectories(config)
  const tokenStore = openSqliteTokenStore({ file: config.tokenDatabaseFile })
  const surveyStore = openSqliteSurveyStore({ file: config.surveyDatabaseFile })
  const uses = createUseRecorder(tokenStore)
  const dispatcher = new Dispatcher({ ...options, mayCall, maxDeadlineMs: config.rpcMaxDeadlineMs })

  const handlers = createTokenHandlers({
    store: tokenStore,
    rules: config,
    now,
    randomBytes,
    uses,
    passwords: await createPasswordHasher({
      concurrency: config.passwordHashConcurrency,
      queueLimit: config.passwordHashQueueLimit,
    }),
    signInLimiter: signInLimiter(config),
  })
  const token = createClient(TokenService, createDirectTransport(dispatcher, 'survey'))
  dispatcher
    .register(TokenService, handlers.token)
    .register(AccountService, handlers.account)
    .register(AdminService, handlers.admin)
    .register(SurveyService, createSurveyHandlers({ store: surveyStore, token, now }))

  return {
    tokenStore,
    surveyStore,
    uses,
    client(service, caller, requestId) {
      const transport = createDirectTransport(dispatcher, caller)
      return createClient(service, requestId === undefined ? transport : forRequest(transport, requestId))
    },
    async close() {
      await uses.flush().catch((error) => options.onUnexpected(error, { method: 'flush', requestId: '' }))
      await tokenStore.close()
      await surveyStore.close()
    },
  }
}

/** A transport all of whose calls belong to one request. */
function forRequest(transport: Transport, requestId: string): Transport {
  const headers = { [REQUEST_ID_HEADER]: requestId }
  return {
    ...transport,
    unary: (method, signal, timeoutMs, _headers, input) => transport.unary(method, signal, timeoutMs, headers, input),
  }
}

function signInLimiter(config: Config) {
  if (config.rateLimit === 'off') return noSignInLimiter
  return createSignInLimiter({
    perAccountAndSource: config.signInFailuresPerAccountAndSource,
    perSource: config.signInFailuresPerSource,
    windowSeconds: config.signInWindowSeconds,
  })
}

/** Directories that are missing, for the owner alone. Those that exist keep their mode: `doctor` judges it. */
function makePrivateDirectories(config: Config): void {
  for (const directory of [
    config.dataDir,
    path.dirname(config.tokenDatabaseFile),
    path.dirname(config.surveyDatabaseFile),
  ]) {
    mkdirSync(directory, { recursive: true, mode: 0o700 })
  }
}
