// The tests' way to a running service. `startService` gives one to a single test, on an empty store and a clock moved by
// hand; `openService` leaves closing to the caller, for tables that share one.
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { Writable } from 'node:stream'
import { onTestFinished } from 'vitest'
import { startAllInOne } from '../bin/compose/all-in-one.js'
import { readConfig } from '../bin/config.js'
import { Clock } from './harness/clock.js'
import { type Backend, Verbs } from './harness/verbs.js'

export interface ServiceOptions {
  /** Variables of the operating contract, over the defaults of tests. */
  readonly env?: Readonly<Record<string, string>>
}

interface Launch {
  readonly dataDir: string
  readonly env: Readonly<Record<string, string>>
  readonly clock: Clock
}

/** How the processes of a service are arranged; the suites run unchanged in every mode. */
const modes = { 'all-in-one': launchAllInOne } satisfies Record<string, (launch: Launch) => Promise<Backend>>
export type Mode = keyof typeof modes

const mode: Mode = 'all-in-one'

const TEST_ENV = { PORT: '0', ADMIN_PORT: '0', RATE_LIMIT: 'off', LOG_LEVEL: 'debug' }

/** An empty service for this test, closed when it ends. */
export async function startService(options: ServiceOptions = {}): Promise<Verbs> {
  const service = await openService(options)
  onTestFinished(() => service.backend.close())
  return service
}

/** An empty service that the caller closes. */
export async function openService(options: ServiceOptions = {}): Promise<Verbs> {
  const dataDir = await mkdtemp(path.join(tmpdir(), 'survey-auth-test-'))
  const env = { ...TEST_ENV, DATA_DIR: dataDir, ...options.env }
  const backend = await modes[mode]({ dataDir, env, clock: new Clock() })
  const close = async () => {
    await backend.close()
    await rm(dataDir, { recursive: true, force: true })
  }
  return new Verbs({ ...backend, close })
}

async function launchAllInOne({ dataDir, env, clock }: Launch): Promise<Backend> {
  const lines: string[] = []
  const logStream = new Writable({
    write(chunk: Buffer, _encoding, done) {
      lines.push(chunk.toString('utf8'))
      done()
    },
  })
  const config = readConfig(env)
  const running = await startAllInOne(config, { now: clock.now, logStream })
  return {
    url: running.url,
    adminUrl: running.adminUrl,
    dataDir,
    clock,
    httpErrorStatus: config.httpErrorStatus === 200 ? '200' : 'semantic',
    admin: running.admin,
    survey: running.survey,
    token: running.token,
    log: () => lines.join(''),
    runJanitor: running.runJanitor,
    close: running.close,
  }
}
