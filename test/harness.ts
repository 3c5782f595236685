// How tests get a running service. `startService` gives one to a single test, on an empty store and a clock moved by hand;
// `openService` leaves closing to the caller, for tables that share one.
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { onTestFinished } from 'vitest'
import { Clock } from './harness/clock.js'
import { hangUp } from './harness/http.js'
import { launchers } from './harness/launch.js'
import { mode } from './harness/mode.js'
import { Verbs } from './harness/verbs.js'

export interface ServiceOptions {
  /** Variables of the operating contract, over the defaults of tests. */
  readonly env?: Readonly<Record<string, string>>
  /** Passwords hashed at their production cost, where time matters; else as cheaply as argon2id allows. */
  readonly isPasswordCostReal?: boolean
  /** A directory that the caller removes, and the clock: for a service on SQLite that is closed and reopened. */
  readonly place?: { readonly dataDir: string; readonly clock: Clock }
}

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

/** A service that the caller closes; empty unless `place` holds data. */
export async function openService(options: ServiceOptions = {}): Promise<Verbs> {
  const dataDir = options.place?.dataDir ?? (await mkdtemp(path.join(tmpdir(), 'survey-auth-test-')))
  const env = { ...TEST_ENV, DATA_DIR: dataDir, ...options.env }
  const overrides = options.isPasswordCostReal ? {} : { passwordCost: LEAST_PASSWORD_COST }
  const backend = await launchers[mode]({ dataDir, env, clock: options.place?.clock ?? new Clock(), overrides })
  const close = async () => {
    hangUp()
    await backend.close()
    if (options.place === undefined) await rm(dataDir, { recursive: true, force: true })
  }
  return new Verbs({ ...backend, close })
}
