// TokenService, AccountService, AdminService and SignInService in this process, with their database and its janitor.

import { LimitService } from '../../gen/surveyauth/internal/v1/limit_service_pb.js'
import { AccountService } from '../../gen/surveyauth/v1/account_service_pb.js'
import { AdminService } from '../../gen/surveyauth/v1/admin_service_pb.js'
import { SignInService } from '../../gen/surveyauth/v1/sign_in_service_pb.js'
import { TokenService } from '../../gen/surveyauth/v1/token_service_pb.js'
import type { Dispatcher } from '../../services/rpc/dispatcher.js'
import { startJanitor } from '../../services/token/janitor.js'
import { createLimitHandlers } from '../../services/token/limit-service.js'
import { createPasswordHasher, type PasswordCost } from '../../services/token/password/hasher.js'
import { createTimeFloor } from '../../services/token/password/time-floor.js'
import { createSignInLimiter, noSignInLimiter } from '../../services/token/sign-in-limiter.js'
import type { SignInMethods } from '../../services/token/sign-in-methods.js'
import type { TokenStore } from '../../services/token/store/token-store.js'
import { createTokenHandlers } from '../../services/token/token-service.js'
import { createUseRecorder } from '../../services/token/use-recorder.js'
import type { Config } from '../config.js'
import type { Observers } from './observers.js'
import { absentUnless, begun, janitorTimes, type StorePart } from './part.js'
import { openTokenStore } from './stores.js'
import type { TimeAndChance } from './time-and-chance.js'

/** Opens the database, creating and migrating it if need be, and registers the handlers. */
export async function openTokenPart(
  config: Config,
  dispatcher: Dispatcher,
  clock: TimeAndChance,
  observers: Observers,
  passwordCost?: PasswordCost,
): Promise<StorePart> {
  const passwords = createPasswordHasher({
    concurrency: config.passwordHashConcurrency,
    queueLimit: config.passwordHashQueueLimit,
    cost: passwordCost,
  })
  const signInMethods = await signInMethodsOf(config, clock.now)
  observers.onProviders(signInMethods.providers.values())
  const store = await openTokenStore(config, observers.onCommit) // last of what may fail: otherwise nobody would close it
  const uses = createUseRecorder(store)
  const timeFloor = createTimeFloor(store, passwords)
  const handlers = createTokenHandlers({
    ...clock,
    ...observers.token,
    store,
    rules: config,
    uses,
    passwords,
    timeFloor,
    signInMethods,
    signInLimiter: signInLimiter(config, store, clock.now),
  })
  dispatcher
    .register(LimitService, createLimitHandlers(store))
    .register(TokenService, handlers.token)
    .register(AccountService, handlers.account)
    .register(AdminService, handlers.admin)
    .register(SignInService, handlers.signIn)
  return {
    store: 'token',
    connections: () => store.connections?.(),
    startJanitor: () => {
      const observer = observers.janitor('token')
      const options = {
        ...observer,
        ...janitorTimes(config),
        store,
        uses,
        timeFloor,
        ...clock,
        keepEndedMs: config.keepEndedSeconds * 1000,
        accessTokenMs: config.accessTokenTtlSeconds * 1000,
        refreshTokenMs: config.refreshTokenTtlSeconds * 1000,
      }
      return begun(startJanitor(options), observer.onError)
    },
    absent: () => absentUnless('token database', store.ping()),
    async close() {
      await uses.flush().catch(observers.janitor('token').onError)
      await store.close()
    },
  }
}

/** @throws ConfigError that names all that is wrong with the file of providers */
async function signInMethodsOf(config: Config, now: () => number): Promise<SignInMethods> {
  const methods = { password: config.passwordSignIn === 'on', platform: config.signInUrl }
  if (config.oidcProvidersFile === '') return { ...methods, providers: new Map() }
  const [{ readOidcProviders }, { createProvider }] = await Promise.all([
    import('../oidc-providers.js'), // heavy, as is the next one: only here
    import('../../services/token/oidc/provider.js'),
  ])
  const providers = readOidcProviders(config.oidcProvidersFile).map((settings) => createProvider(settings, now))
  return { ...methods, providers: new Map(providers.map((provider) => [provider.settings.id, provider])) }
}

function signInLimiter(config: Config, store: TokenStore, now: () => number) {
  if (config.rateLimit === 'off') return noSignInLimiter
  const limits = {
    perAccountAndSource: config.signInFailuresPerAccountAndSource,
    perSource: config.signInFailuresPerSource,
    windowSeconds: config.signInWindowSeconds,
  }
  return createSignInLimiter(limits, store, now)
}
