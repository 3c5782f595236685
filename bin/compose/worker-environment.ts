// How a worker's environment differs from its parent's.
import { type Address, formatAddress } from '../../services/rpc/address.js'

/** A gateway opens no database: no worker carries these secrets, or fails to start because a file that held one is gone. */
const OF_DATABASES = /^((TOKEN|SURVEY)_DATABASE_URL(_FILE)?|PG[A-Z]+)$/

/** Changes to `env`, the parent's; undefined removes a variable. `services`: address of the parent's services, if it has any. */
export function workerEnvironment(
  env: Readonly<Record<string, string | undefined>>,
  services: Address | undefined,
): Record<string, string | undefined> {
  const url = services && formatAddress(services)
  return {
    ...Object.fromEntries(Object.keys(env).flatMap((name) => (OF_DATABASES.test(name) ? [[name, undefined]] : []))),
    ADMIN_PORT: '0',
    LOG_FORMAT: 'json', // its parent formats its lines with its own
    ...(url === undefined ? {} : { TOKEN_SERVICE_URL: url, SURVEY_SERVICE_URL: url }),
  }
}
