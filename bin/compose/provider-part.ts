// SurveyService in this process over a platform's SurveyProvider, in place of a database.
import { type Client, Code } from '@connectrpc/connect'
import { ProviderCapability } from '../../gen/surveyauth/provider/v1/survey_provider_pb.js'
import { SurveyService } from '../../gen/surveyauth/v1/survey_service_pb.js'
import type { TokenService } from '../../gen/surveyauth/v1/token_service_pb.js'
import { type Address, formatAddress } from '../../services/rpc/address.js'
import type { Dispatcher } from '../../services/rpc/dispatcher.js'
import { identifyByName } from '../../services/rpc/identity.js'
import { providedSurveys } from '../../services/survey/provider/provided-surveys.js'
import { type ProviderCall, ProviderClient } from '../../services/survey/provider/provider-client.js'
import { ProviderFailure } from '../../services/survey/provider/provider-failure.js'
import { createProvidedSurveyHandlers } from '../../services/survey/survey-service.js'
import type { Config } from '../config.js'
import type { Log } from '../telemetry/log.js'
import type { Observers } from './observers.js'
import type { Absence, Part } from './part.js'
import { readTls } from './tls.js'

/** How often a provider that answered is asked whether it still does; one that did not, at every look. */
const ASK_EVERY_MS = 10_000

export interface ProviderPart extends Part {
  readonly url: string
  /** From now on, calls use the certificates as they are now. */
  reconnect(): void
}

/** Registers the handlers. `token` is called as `survey`. The provider need not answer yet. */
export function openProviderPart(
  config: Config,
  address: Address,
  dispatcher: Dispatcher,
  token: Client<typeof TokenService>,
  observers: Pick<Observers, 'onSurveyProvider' | 'onProviderCall'>,
  log: Pick<Log, 'note'>,
): ProviderPart {
  const client = createProviderClient(config, address, observers.onProviderCall)
  observers.onSurveyProvider(client)
  dispatcher.register(SurveyService, createProvidedSurveyHandlers({ surveys: providedSurveys(client), token }))
  const url = formatAddress(address)
  let nextAskMs = 0
  let isAsking = false
  let known = ''
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
  }

  return {
    url,
    async absent(): Promise<Absence[]> {
      void ask()
      const why = client.isBreakerOpen ? 'it does not answer calls, and is asked now and then' : cause
      return why === undefined ? [] : [{ what: `survey provider at ${url}`, cause: why, isDispensable: true }]
    },
    reconnect() {
      client.reconnect()
      nextAskMs = 0
    },
    async close() {
      client.close()
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
    tls: address.kind === 'tls' ? () => readTls(config) : undefined,
    checkNames: (names) =>
      identify(names)?.caller === 'survey_provider'
        ? undefined
        : new Error('its certificate does not have the role survey_provider: see RPC_CALLERS'),
    onCall,
  })
}

/** What the provider says of itself, for a person; or why it is no good. */
export async function introduce(
  client: Pick<ProviderClient, 'info'>,
): Promise<
  { readonly good: string; readonly cause?: undefined } | { readonly good?: undefined; readonly cause: string }
> {
  try {
    const { name, version, capabilities } = await client.info()
    const answers = capabilities.includes(ProviderCapability.ANSWERS) ? 'with answers' : 'without answers'
    return { good: [name, version].filter(Boolean).join(' ').concat(', ', answers) }
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
