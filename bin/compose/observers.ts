// Where everything in a process reports what happened: the log, the metrics and the traces.
import type { GatewayOptions } from '../../gateway/app.js'
import type { DispatcherOptions } from '../../services/rpc/dispatcher.js'
import { reasonOf } from '../../services/rpc/service-error.js'
import { StoreUnavailable } from '../../services/store/store-unavailable.js'
import type { TokenDeps } from '../../services/token/deps.js'
import { errorCode } from '../error-code.js'
import { lineAMinute } from '../telemetry/line-a-minute.js'
import type { Log, RemovedRows } from '../telemetry/log.js'
import type { Metrics } from '../telemetry/metrics.js'
import type { Tracing } from '../telemetry/tracing.js'
import type { StoreObserver } from './stores.js'

export interface Observers {
  readonly dispatcher: Pick<DispatcherOptions, 'onCall' | 'onUnexpected' | 'startSpan'>
  readonly gateway: Pick<GatewayOptions, 'onRequest' | 'onUnexpected' | 'onDropped' | 'startSpan'>
  /** undefined without metrics. */
  readonly store: StoreObserver | undefined
  readonly token: Pick<TokenDeps, 'onReplayed'>
  /** Of either database. */
  readonly janitor: { onRemoved(removed: RemovedRows): void; onError(error: unknown): void }
}

/** With the log only, for a command, which nobody scrapes or traces. */
export function createObservers(log: Log, metrics?: Metrics, tracing?: Tracing): Observers {
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
    store: metrics && {
      onOperation: metrics.storeOperation,
      onCommit: metrics.commit,
      onFailure: tellOfOutages(log),
    },
    token: { onReplayed: metrics?.replayed },
    janitor: {
      onRemoved(removed) {
        log.removed(removed)
        metrics?.removed(removed)
      },
      onError(error) {
        // An unavailable database is reported where it is called.
        if (!(error instanceof StoreUnavailable)) log.failure('the janitor failed and will try again', error)
      },
    },
  }
}

function tellOfOutages(log: Log): StoreObserver['onFailure'] {
  const tell = lineAMinute(log)
  return (store, error) => {
    if (!(error instanceof StoreUnavailable)) return
    const reason = reasonOf(error)
    tell(`${store} ${errorCode(error.cause, reason)}`, `the ${store} database is unavailable: ${reason}`)
  }
}
