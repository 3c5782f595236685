// SurveyService in this process over a platform's SurveyProvider, in place of a database.
import { type Client, Code } from '@connectrpc/connect'
import { ProviderCapability } from '../../gen/surveyauth/provider/v1/survey_provider_pb.js'
import { SurveyService } from '../../gen/surveyauth/v1/survey_service_pb.js'
import type { TokenService } from '../../gen/surveyauth/v1/token_service_pb.js'
import { type Address, formatAddress } from '../../services/rpc/address.js'
import type { Dispatcher } from '../../services/rpc/dispatcher.js'
import { identifyByName } from '../../services/rpc/identity.js'
import type { TlsMaterial } from '../../services/rpc/listener.js'
import { reasonOf } from '../../services/rpc/service-error.js'
import type { Rounds } from '../../services/storage/rounds.js'
import { StoreUnavailable } from '../../services/storage/store-unavailable.js'
import { providedAnswers, providedSurveys } from '../../services/survey/provider/provided-surveys.js'
import { type ProviderCall, ProviderClient } from '../../services/survey/provider/provider-client.js'
import { ProviderFailure } from '../../services/survey/provider/provider-failure.js'
import { createProvidedSurveyHandlers } from '../../services/survey/survey-service.js'
import type { Config } from '../config.js'
import type { Log } from '../telemetry/log.js'
import { surveyCopy } from './copied-schemas.js'
import type { Observers } from './observers.js'
import type { Absence, Part } from './part.js'
import { beforeOpening } from './stores.js'
import { openSurveyDatabase, type SurveyDatabase } from './survey-part.js'
import type { TimeAndChance } from './time-and-chance.js'
import { readTls } from './tls.js'

/** How often a provider that answered is asked whether it still does; one that did not, at every look. */
const ASK_EVERY_MS = 10_000

export interface ProviderPart extends Part {
  readonly url: string
  /** From now on, calls use these certificates. */
  reconnect(tls: TlsMaterial): void
}

/** Registers the handlers. `token` is called as `survey`. The provider need not answer yet. */
export function openProviderPart(
  config: Config,
  address: Address,
  dispatcher: Dispatcher,
  clock: TimeAndChance,
  token: Client<typeof TokenService>,
  observers: Observers,
  log: Log,
): ProviderPart {
  const client = createProviderClient(config, address, observers.onProviderCall)
  observers.onSurveyProvider(client)
  const kept = keeping(config, clock, observers, log)
  const answering = async () => {
    const deps = hasAnswers ? await kept.deps() : undefined
    return deps && { ...deps, token, answers: providedAnswers(client) }
  }
  const surveys = providedSurveys(client)
  dispatcher.register(SurveyService, createProvidedSurveyHandlers({ surveys, token, answering }))
  const url = formatAddress(address)
  let nextAskMs = 0
  let isAsking = false
  let known = ''
  let hasAnswers = false
  let cause: string | undefined

  /** Not waited for: a provider that hangs must not make /readyz hang. */
  async function ask(): Promise<void> {
    if (isAsking || performance.now() < nextAskMs) return
    isAsking = true
    const answer = await introduce(client)
    isAsking = false
    cause = answer.cause
    if (answer.good === undefined) return
    nextAskMs = performance.now() + ASK_EVERY_MS
    if (answer.good !== known) log.note(`surveys are read from ${url}: ${answer.good}`)
    known = answer.good
    hasAnswers = answer.hasAnswers
    if (hasAnswers) await kept.deps().catch(() => undefined) // told as absent
  }

  return {
    url,
    async absent(): Promise<Absence[]> {
      void ask()
      const why = client.isBreakerOpen ? 'it does not answer calls, and is asked now and then' : cause
      const ofProvider = why === undefined ? [] : [{ what: `survey provider at ${url}`, cause: why }]
      return [...ofProvider, ...(await kept.absent())].map((absence) => ({ ...absence, isDispensable: true }))
    },
    reconnect(tls) {
      client.reconnect(tls)
      nextAskMs = 0
    },
    async close() {
      client.close()
      await kept.close()
    },
  }
}

/**
 * The survey database, opened when the provider has answers: it keeps the key of respondents' pseudonyms, and audits what apps read.
 * If that fails, it is tried again whenever it is needed.
 */
function keeping(config: Config, clock: TimeAndChance, observers: Observers, log: Log) {
  let opening: Promise<SurveyDatabase> | undefined
  let failure: unknown
  let janitor: Rounds<unknown> | undefined

  async function open(): Promise<SurveyDatabase> {
    const { surveyDatabase } = config
    const said = await beforeOpening(surveyCopy, surveyDatabase)
    if (said !== undefined) log.note(said)
    const database = await openSurveyDatabase(config, clock, observers)
    janitor = database.startJanitor()
    failure = undefined
    return database
  }

  return {
    async deps(): Promise<SurveyDatabase['deps']> {
      opening ??= open()
      try {
        return (await opening).deps
      } catch (error) {
        opening = undefined
        failure = error
        throw new StoreUnavailable(error)
      }
    },
    async absent(): Promise<Absence[]> {
      if (failure !== undefined) return [{ what: 'survey database', cause: reasonOf(failure) }]
      const database = await opening?.catch(() => undefined)
      return (await database?.absent()) ?? []
    },
    async close(): Promise<void> {
      const database = await opening?.catch(() => undefined)
      await janitor?.stop()
      await database?.close()
    },
  }
}

/** A client of the provider at `address`, whose certificate must have its role. */
export function createProviderClient(
  config: Config,
  address: Address,
  onCall: (call: ProviderCall) => void,
): ProviderClient {
  const identify = identifyByName(config.rpcCallers)
  return new ProviderClient({
    address,
    tls: address.kind === 'tls' ? readTls(config) : undefined,
    checkNames: (names) =>
      identify(names)?.caller === 'survey_provider'
        ? undefined
        : new Error('its certificate does not have the role survey_provider: see RPC_CALLERS'),
    onCall,
  })
}

/** What the provider says of itself; `good` for a person. Or why it is no good. */
export async function introduce(
  client: Pick<ProviderClient, 'info'>,
): Promise<
  | { readonly good: string; readonly hasAnswers: boolean; readonly cause?: undefined }
  | { readonly good?: undefined; readonly cause: string }
> {
  try {
    const { name, version, capabilities } = await client.info()
    const hasAnswers = capabilities.includes(ProviderCapability.ANSWERS)
    const answers = hasAnswers ? 'with answers' : 'without answers'
    return { good: [name, version].filter(Boolean).join(' ').concat(', ', answers), hasAnswers }
  } catch (error) {
    if (!(error instanceof ProviderFailure)) throw error
    const what = WORDS[error.outcome]
    return { cause: what === undefined ? error.message : `${what}: ${error.message}` }
  }
}

const WORDS: Readonly<Partial<Record<ProviderFailure['outcome'], string>>> = {
  [Code.DeadlineExceeded]: 'GetProviderInfo is not answered in time',
  [Code.Unimplemented]: 'it serves no surveyauth.provider.v1.SurveyProvider',
  [Code.Unauthenticated]: 'it does not let this process call',
  [Code.PermissionDenied]: 'it does not let this process call',
  malformed: 'the answer to GetProviderInfo is no good',
}
