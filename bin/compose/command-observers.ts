// Where the services report what happened when a command runs them. What the command reports itself is not logged too.
import { Code, ConnectError } from '@connectrpc/connect'
import type { FailedCall } from '../../services/rpc/dispatcher.js'
import type { Config } from '../config.js'
import type { CommandError } from '../exit.js'
import { createLog } from '../telemetry/log.js'
import { damage } from './database-file.js'
import { createObservers, type Observers, storeOf } from './observers.js'

export interface CommandObservers {
  readonly observers: Observers
  /** The damage to a database file on which a call failed, if it did; else its failure as it is. */
  damageOr(error: unknown): unknown
}

export function createCommandObservers(config: Config): CommandObservers {
  const { dispatcher, ...others } = createObservers(createLog(config, process.stderr))
  const databases = { token: config.tokenDatabase, survey: config.surveyDatabase }
  let found: CommandError | undefined
  const isDamage = (error: unknown, { service }: FailedCall) => {
    const database = databases[storeOf(service)]
    const failure = database.kind === 'sqlite' ? damage(database.file, error) : undefined
    found ??= failure
    return failure !== undefined
  }
  const observers: Observers = {
    ...others,
    dispatcher: {
      ...dispatcher,
      onCall(record) {
        if (config.logLevel === 'debug') dispatcher.onCall(record)
      },
      onUnexpected(error, call) {
        if (!isDamage(error, call)) dispatcher.onUnexpected(error, call)
      },
      onUnavailable: isDamage,
    },
  }
  return { observers, damageOr: (error) => (found && isOfDatabase(error) ? found : error) }
}

/** As calls fail on a damaged file: reads unexpectedly, writes as if the database did not answer. */
function isOfDatabase(error: unknown): boolean {
  return error instanceof ConnectError && [Code.Internal, Code.Unavailable].includes(error.code)
}
