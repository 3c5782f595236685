// Where the services report what happened when a command runs them. What the command reports itself is not logged too.
import { Code, ConnectError } from '@connectrpc/connect'
import type { Config } from '../config.js'
import { createLog } from '../telemetry/log.js'
import { damage } from './database-file.js'
import { createObservers, type Observers } from './observers.js'

export interface CommandObservers {
  readonly observers: Observers
  /** The damage to a database file on which a call failed, if it did; else its failure as it is. */
  damageOr(error: unknown): unknown
}

interface Damage {
  readonly error: unknown
  readonly failure: unknown
}

export function createCommandObservers(config: Config): CommandObservers {
  const { dispatcher, ...others } = createObservers(createLog(config, process.stderr))
  const databases = { token: config.tokenDatabase, survey: config.surveyDatabase }
  let found: Damage | undefined
  const observers: Observers = {
    ...others,
    dispatcher: {
      ...dispatcher,
      onCall(record) {
        if (config.logLevel === 'debug') dispatcher.onCall(record)
      },
      onUnexpected(error, record) {
        if (error !== found?.error) dispatcher.onUnexpected(error, record)
      },
    },
    store: {
      onOperation() {},
      onCommit() {},
      onFailure(store, error) {
        const database = databases[store]
        const failure = database.kind === 'sqlite' && damage(database.file, error)
        if (failure) found = { error, failure }
      },
    },
  }
  return { observers, damageOr: (error) => (found && isOfDatabase(error) ? found.failure : error) }
}

/** As calls fail on a damaged file: reads unexpectedly, writes as if the database did not answer. */
function isOfDatabase(error: unknown): boolean {
  return error instanceof ConnectError && [Code.Internal, Code.Unavailable].includes(error.code)
}
