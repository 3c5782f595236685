// Where everything in a process reports what happened: the log, the metrics and the traces.
import { Code } from '@connectrpc/connect'
import type { GatewayOptions } from '../../gateway/app.js'
import { SurveyProvider } from '../../gen/surveyauth/provider/v1/survey_provider_pb.js'
import { SurveyService } from '../../gen/surveyauth/v1/survey_service_pb.js'
import type { DispatcherOptions } from '../../services/rpc/dispatcher.js'
import { reasonOf } from '../../services/rpc/service-error.js'
import { CLOCK_WAIT_MS } from '../../services/storage/clean-up-clock.js'
import { StoreUnavailable } from '../../services/storage/store-unavailable.js'
import type { ProviderCall, ProviderClient } from '../../services/survey/provider/provider-client.js'
import type { ProviderFailure } from '../../services/survey/provider/provider-failure.js'
import type { TokenDeps } from '../../services/token/deps.js'
import type { Provider } from '../../services/token/oidc/provider.js'
import { errorCode } from '../error-code.js'
import { lineAMinute } from '../telemetry/line-a-minute.js'
import { type Log, outcomeName, type RemovedRows } from '../telemetry/log.js'
import type { Metrics } from '../telemetry/metrics.js'
import type { Tracing } from '../telemetry/tracing.js'
import type { OnCommit } from './stores.js'

export interface JanitorObserver {
  onRemoved(removed: RemovedRows): void
  onShortened(rows: number): void
  onWaiting(lastMs: number | undefined): void
  onError(error: unknown): void
}

export interface Observers {
  readonly dispatcher: Pick<DispatcherOptions, 'onCall' | 'onUnexpected' | 'onUnavailable' | 'startSpan'>
  readonly gateway: Pick<GatewayOptions, 'onRequest' | 'onUnexpected' | 'onDropped' | 'startSpan'>
  /** undefined without metrics. */
  readonly onCommit: OnCommit | undefined
  readonly token: Pick<TokenDeps, 'onReplayed' | 'onProvider'>
  /** Called once with the OpenID Providers of this process. */
  readonly onProviders: (providers: Iterable<Provider>) => void
  /** Called once with the provider of a platform's surveys, if this process reads them there. */
  readonly onSurveyProvider: (client: ProviderClient) => void
  readonly onProviderCall: (call: ProviderCall) => void
  readonly janitor: (database: 'token' | 'survey') => JanitorObserver
}

/** With the log only, for a command, which nobody scrapes or traces. */
export function createObservers(log: Log, metrics?: Metrics, tracing?: Tracing): Observers {
  const tellOfFault = tellOfFaults(log)
  return {
    dispatcher: {
      startSpan: tracing?.startCallSpan,
      onCall(record) {
        log.call(record)
        metrics?.call(record)
      },
      onUnexpected(error, { method, requestId }) {
        log.failure(`${method} failed unexpectedly`, error, requestId)
        metrics?.unexpected()
      },
      onUnavailable: tellOfOutages(log),
    },
    gateway: {
      startSpan: tracing?.startRequestSpan,
      onRequest(record) {
        log.request(record)
        metrics?.request(record)
      },
      onUnexpected(error, requestId) {
        log.failure('a request failed unexpectedly', error, requestId)
        metrics?.unexpected()
      },
      onDropped: metrics?.dropped,
    },
    onCommit: metrics?.commit,
    token: {
      onReplayed: metrics?.replayed,
      onProvider(event) {
        log.provider(event)
        metrics?.provider(event)
      },
    },
    onProviders: (providers) => metrics?.providers(providers),
    onSurveyProvider: (client) => metrics?.surveyProvider(client),
    onProviderCall(call) {
      tellOfFault(call)
      metrics?.surveyProviderCall(call)
    },
    janitor: (database) => ofJanitor(database, log, metrics),
  }
}

function ofJanitor(database: string, log: Log, metrics: Metrics | undefined): JanitorObserver {
  let isWaiting = false
  return {
    onRemoved: log.removed,
    onShortened(rows) {
      log.warning(
        `a clock that was ahead has issued ${rows} codes, grants, tokens or sessions: they are good no longer than their lifetime from now`,
      )
    },
    onWaiting(lastMs) {
      metrics?.cleanUpWaits(database, lastMs !== undefined)
      if (lastMs !== undefined && !isWaiting) log.warning(cleanUpWaits(database, lastMs))
      isWaiting = lastMs !== undefined
    },
    onError(error) {
      // That a database is unavailable is told where a call needs it, and by /readyz.
      if (!(error instanceof StoreUnavailable)) log.failure('the janitor failed and will try again', error)
    },
  }
}

function cleanUpWaits(database: string, lastMs: number): string {
  return `the ${database} database was last cleaned up at ${new Date(lastMs).toISOString()}, far from what the clock says: what has ended since stays until a service has run for ${CLOCK_WAIT_MS / 3_600_000} hours; if the clock is wrong, correct it before`
}

function tellOfOutages(log: Log): DispatcherOptions['onUnavailable'] {
  const tell = lineAMinute(log)
  return (error, { service }) => {
    const store = storeOf(service)
    const reason = reasonOf(error)
    tell(`${store} ${errorCode(error.cause, reason)}`, `the ${store} database is unavailable: ${reason}`)
  }
}

/** Of a provider: what it does wrong, one line a minute for each kind. That it does not answer is told by who follows its state. */
function tellOfFaults(log: Log): Observers['onProviderCall'] {
  const tell = lineAMinute(log)
  return ({ method, failure, requestId }) => {
    if (failure === undefined || EXPECTED.has(failure.outcome)) return
    const kind = outcomeName(failure.outcome)
    const name = kind === 'ownership_violation' ? 'provider_ownership_violation' : kind
    tell(
      kind,
      `the survey provider's answer to ${method} is no good: ${name}: ${failure.message}; request ${requestId}`,
    )
  }
}

const EXPECTED: ReadonlySet<ProviderFailure['outcome']> = new Set([
  Code.NotFound,
  Code.Canceled,
  Code.Unavailable,
  Code.DeadlineExceeded,
  'not_asked',
])

/** Which database a service uses. */
export function storeOf(service: string): 'token' | 'survey' {
  return service === SurveyService.typeName || service === SurveyProvider.typeName ? 'survey' : 'token'
}
