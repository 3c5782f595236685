// What the doctor looks at, one function per line of its report.
import { accessSync, constants, existsSync, readdirSync, readFileSync, statfsSync, statSync } from 'node:fs'
import { get } from 'node:http'
import { text as textOf } from 'node:stream/consumers'
import { type Address, formatAddress, hostInUrl, isTooLongForSocket } from '../../services/rpc/address.js'
import { requireSocketAt, stateOfSocket } from '../../services/rpc/listener.js'
import { reasonOf } from '../../services/rpc/service-error.js'
import { mayBelieve } from '../../services/storage/clean-up-clock.js'
import type { CopiedSchema } from '../../services/storage/copy/copy-stores.js'
import { DatabaseRefused } from '../../services/storage/database-refused.js'
import type { Schema as PostgresSchema } from '../../services/storage/postgres/migrate.js'
import type { Schema as SqliteSchema } from '../../services/storage/sqlite/migrate.js'
import { socketIn } from '../compose/addresses.js'
import { surveyCopy, tokenCopy } from '../compose/copied-schemas.js'
import { inspectDatabase, readOnce } from '../compose/database-file.js'
import { type PortVariable, tryPort } from '../compose/listen.js'
import { cleanUpWaits } from '../compose/observers.js'
import { type Config, RPC_ADDRESSES, usesTls } from '../config.js'
import { ANOTHER_PASSWORD, DEMO_USER, hasDemoAccount } from '../demo/known-account.js'
import { errorCode } from '../error-code.js'
import { CommandError } from '../exit.js'
import { isLoopback } from '../loopback.js'
import type { Database } from '../settings.js'
import { inShell } from '../shell.js'
import { CERTIFICATE_SOON_MS, endOf, isSignedBy } from '../tls-files.js'
import { untrustedProxy } from '../untrusted-proxy.js'

export interface Verdict {
  /** `odd` is worth a look and fails nothing. */
  readonly state: 'ok' | 'odd' | 'wrong'
  readonly detail: string
}

export interface Finding extends Verdict {
  readonly check: string
}

const LOW_DISK_BYTES = 1024 ** 3
const NO_DISK_BYTES = 64 * 1024 ** 2
/** This program was written after this moment, so a clock before it is wrong. */
const EARLIEST_NOW_MS = Date.UTC(2025, 0, 1)
const CLOCK_TOLERANCE_MS = 5_000
const ANSWER_TIMEOUT_MS = 2_000

const ok = (detail: string): Verdict => ({ state: 'ok', detail })
const odd = (detail: string): Verdict => ({ state: 'odd', detail })
const wrong = (detail: string): Verdict => ({ state: 'wrong', detail })

/** Undefined where there is nothing to look at. */
type Check = (config: Config) => Verdict | undefined | Promise<Verdict>

export const checks: Readonly<Record<string, Check>> = {
  'data directory': dataDirectory,
  'token database': ({ tokenDatabase, tokenServiceUrl }) => database(tokenDatabase, tokenCopy, tokenServiceUrl),
  'survey database': ({ surveyDatabase, surveyServiceUrl }) => database(surveyDatabase, surveyCopy, surveyServiceUrl),
  'demo account': ({ tokenDatabase }) => demoAccount(tokenDatabase),
  'disk space': ({ dataDir }) => diskSpace(dataDir),
  clock: ({ tokenDatabase }) => clock(tokenDatabase),
  timeouts,
  certificate,
  'public address': publicAddress,
  'admin address': adminAddress,
  'RPC address': rpcAddress,
  'token service': (config) => config.tokenServiceUrl && serviceElsewhere('token', config.tokenServiceUrl, config),
  'survey service': (config) => config.surveyServiceUrl && serviceElsewhere('survey', config.surveyServiceUrl, config),
  server,
}

function dataDirectory({ dataDir, tokenServiceUrl, surveyServiceUrl }: Config): Verdict | undefined {
  if (existsSync(dataDir)) return privateDirectory(dataDir)
  if (tokenServiceUrl && surveyServiceUrl) return undefined
  return odd(`${dataDir} does not exist yet; the first start creates it`)
}

function privateDirectory(directory: string): Verdict {
  const stat = statSync(directory)
  if (!stat.isDirectory()) return wrong(`${directory} is not a directory`)
  const { mode, uid } = stat
  const self = process.getuid?.()
  if (self !== undefined && self !== 0 && uid !== self) return wrong(`${directory} belongs to another user`)
  if ((mode & 0o077) !== 0) return wrong(`${directory} is open to others; ${toClose(directory)}`)
  try {
    accessSync(directory, constants.W_OK)
  } catch (error) {
    return wrong(`${directory} cannot be written (${errorCode(error, 'unknown')})`)
  }
  return ok(`${directory}, for its owner alone`)
}

/** What we, or docs/operators/data.md, put in a DATA_DIR. Closing a directory that others use, /etc for example, breaks them. */
const OURS = /^((token|survey)\.db(-.+)?|.+\.sock|demo|moved)$/

function toClose(directory: string): string {
  const isOurs = readdirSync(directory).every((name) => OURS.test(name))
  return isOurs
    ? `run: chmod 700 ${inShell(directory)}`
    : 'it holds other things too: DATA_DIR should be a directory of its own'
}

/** @param service address of its service, if that is elsewhere: then no database need be here */
function database(where: Database, schemas: CopiedSchema, service: Address | undefined): ReturnType<Check> {
  if (where.kind === 'postgres') return postgres(where.url, schemas.postgres)
  return sqliteFile(where.file, schemas.sqlite, service)
}

function sqliteFile(file: string, schema: SqliteSchema, service: Address | undefined): Verdict | undefined {
  try {
    const facts = inspectDatabase(file, schema)
    if (!facts) return service ? undefined : odd(`${file} does not exist yet; the first start creates it`)
    if (facts.integrity !== 'ok') return wrong(`${file} is damaged: ${inOneLine(facts.integrity)}; restore a backup`)
    if ((facts.mode & 0o077) !== 0) return wrong(`${file} is open to others; run: chmod 600 ${inShell(file)}`)
    if (facts.schemaVersion === 0) return odd(`${file} holds nothing yet; the next start begins a new database there`)
    const next = migrated(facts.schemaVersion, schema)
    if (facts.journalMode !== 'wal')
      return odd(`${file} is fresh from a backup; the next start turns its WAL on${next}`)
    return ok(`schema version ${facts.schemaVersion}, intact${next}`)
  } catch (error) {
    if (error instanceof CommandError) return wrong([error.message, error.hint].join('; '))
    if (error instanceof DatabaseRefused) return wrong(error.message)
    return wrong(`${file} cannot be read: ${reasonOf(error)}`)
  }
}

async function postgres(url: string, schema: PostgresSchema): Promise<Verdict> {
  const { schemaVersionOf } = await import('../../services/storage/postgres/transaction.js') // loads the driver: only here
  try {
    const version = await schemaVersionOf(url, schema)
    if (version === 0) return odd('PostgreSQL has no schema yet; the first start creates it')
    return ok(`PostgreSQL, schema version ${version}${migrated(version, schema)}`)
  } catch (error) {
    return wrong(error instanceof DatabaseRefused ? error.message : `PostgreSQL cannot be used: ${reasonOf(error)}`)
  }
}

/** Wrong wherever it is: this command may run without the environment of the service. */
async function demoAccount(where: Database): Promise<Verdict> {
  try {
    if (!(await hasDemoAccount(where))) return ok('there is none')
    return wrong(`the password of the account ${DEMO_USER.username} is public; run: ${ANOTHER_PASSWORD}`)
  } catch {
    return odd('could not be checked: see the token database')
  }
}

function migrated(version: number, { migrations }: SqliteSchema | PostgresSchema): string {
  return version < migrations.length ? '; the next start migrates it' : ''
}

export function inOneLine(text: string): string {
  return text.trim().replace(/\s*\n\s*/g, '; ')
}

function diskSpace(directory: string): Verdict {
  if (!existsSync(directory)) return ok('nothing stored yet')
  const { bavail, bsize } = statfsSync(directory)
  const free = bavail * bsize
  const detail = `${(free / 1024 ** 3).toFixed(1)} GiB free`
  if (free < NO_DISK_BYTES) return wrong(`${detail}; writes are about to fail`)
  return free < LOW_DISK_BYTES ? odd(detail) : ok(detail)
}

/** Lifetimes depend on the clock: one that went back keeps things alive for longer. */
async function clock(database: Database): Promise<Verdict> {
  const now = Date.now()
  if (now < EARLIEST_NOW_MS) return wrong(`the clock says ${new Date(now).toISOString()}`)
  const files = database.kind === 'sqlite' ? [database.file, `${database.file}-wal`] : []
  const aheadMs = Math.max(0, ...files.filter(existsSync).map((name) => statSync(name).mtimeMs - now))
  if (aheadMs > CLOCK_TOLERANCE_MS) {
    return wrong(`the database was written ${Math.round(aheadMs / 1000)} s in the future; the clock went back`)
  }
  const lastMs = await lastCleanUpOf(database).catch(() => undefined) // a database that cannot be asked has a line of its own
  if (!mayBelieve(lastMs, now, 0) && lastMs !== undefined) return odd(cleanUpWaits('token', lastMs))
  return ok(new Date(now).toISOString())
}

/** undefined where there is none. */
async function lastCleanUpOf(database: Database): Promise<number | undefined> {
  if (database.kind === 'sqlite') {
    const sql = 'SELECT at_ms AS atMs FROM clean_ups'
    return existsSync(database.file)
      ? readOnce<{ atMs: number }>(database.file, tokenCopy.sqlite, sql, [])[0]?.atMs
      : undefined
  }
  const { readOnce: readOnPostgres } = await import('../../services/storage/postgres/transaction.js') // loads the driver: only here
  const sql = 'SELECT at_ms AS "atMs" FROM token_clean_ups'
  return (await readOnPostgres<{ atMs: number }>(database.url, tokenCopy.postgres, sql, []))[0]?.atMs
}

function timeouts(config: Config): Verdict {
  const { tokenDatabase, surveyDatabase, databaseStatementTimeoutMs, rpcTimeoutMs, rpcMaxDeadlineMs } = config
  if (rpcTimeoutMs > rpcMaxDeadlineMs) return odd('RPC_TIMEOUT_MS is above RPC_MAX_DEADLINE_MS, so the latter applies')
  const isOnPostgres = [tokenDatabase, surveyDatabase].some(({ kind }) => kind === 'postgres')
  if (isOnPostgres && databaseStatementTimeoutMs >= rpcTimeoutMs) {
    return odd(
      'DATABASE_STATEMENT_TIMEOUT_MS is not below RPC_TIMEOUT_MS: statements may run on after their call has timed out',
    )
  }
  return ok(`a call may take ${rpcTimeoutMs} ms`)
}

function certificate(config: Config): Verdict {
  if (!usesTls(config, RPC_ADDRESSES)) return ok('none is needed')
  const cert = readFileSync(config.rpcTlsCert, 'utf8') // readConfig has read both before
  const endsAtMs = endOf(cert)
  const detail = `${config.rpcTlsCert} ends at ${new Date(endsAtMs).toISOString()}`
  if (endsAtMs < Date.now()) return wrong(detail)
  if (!isSignedBy(cert, readFileSync(config.rpcTlsCa, 'utf8'))) {
    return odd(`${config.rpcTlsCert} is not signed by RPC_TLS_CA: processes with the same one turn this one away`)
  }
  return endsAtMs - Date.now() < CERTIFICATE_SOON_MS ? odd(detail) : ok(detail)
}

async function publicAddress(config: Config): Promise<Verdict> {
  const { publicUrl, host } = config
  const reason = (await whyNotHere(host, 'PORT')) ?? (await whyNotFree(host, config.port, 'PORT', isOurGateway))
  if (reason !== undefined) return wrong(reason)
  const aboutProxy = untrustedProxy(config)
  if (aboutProxy !== undefined) return odd(aboutProxy)
  if (publicUrl.protocol === 'https:') return ok(publicUrl.origin)
  if (isLoopback(publicUrl.hostname) && isLoopback(host)) return ok(`${publicUrl.origin}, this machine only`)
  if (isLoopback(publicUrl.hostname)) {
    return wrong(
      `HOST is ${host} but PUBLIC_URL is ${publicUrl.origin}; set PUBLIC_URL to the https address people use`,
    )
  }
  return wrong(`${publicUrl.origin} is not https: tokens and passwords travel in the clear`)
}

async function adminAddress({ adminHost, adminPort }: Config): Promise<Verdict> {
  if (adminPort === 0) return odd('turned off: no health checks, no metrics')
  const reason = await whyNotHere(adminHost, 'ADMIN_PORT')
  if (reason !== undefined) return wrong(reason)
  const address = `${hostInUrl(adminHost)}:${adminPort}`
  if (isLoopback(adminHost)) return ok(`${address}, this machine only`)
  return odd(`${address}; make sure that only your monitoring reaches it`)
}

/** Why nothing can listen on this address, whatever the port; undefined when something can. */
async function whyNotHere(host: string, variable: PortVariable): Promise<string | undefined> {
  try {
    await tryPort(host, 0, variable)
    return undefined
  } catch (error) {
    if (error instanceof CommandError) return error.message
    throw error
  }
}

/** Why a server that is not running could not take this port; undefined when it is free, or ours as `isOurs` finds. */
async function whyNotFree(
  host: string,
  port: number,
  variable: PortVariable,
  isOurs: (host: string, port: number) => Promise<boolean>,
): Promise<string | undefined> {
  try {
    await tryPort(host, port, variable)
  } catch (error) {
    if (!(error instanceof CommandError)) throw error
    if (/ is in use$/.test(error.message) && !(await isOurs(host, port))) {
      return `${error.message} by another program; choose another ${variable}`
    }
  }
  return undefined
}

/** Whether the envelope of a gateway comes from there. */
async function isOurGateway(host: string, port: number): Promise<boolean> {
  const text = await answer(host, port, '/api/').then(
    (found) => found.text,
    () => '',
  )
  return /^\{"code":"\w+","error":.+"request_id":"/.test(text)
}

async function isAdminPort(host: string, port: number): Promise<boolean> {
  return answer(host, port, '/readyz').then(isReadiness, () => false)
}

/** Whether it is what /readyz of this program says. */
function isReadiness({ status, type, text }: Answer): boolean {
  return type === 'text/plain; charset=utf-8' && (status === 503 || (status === 200 && text === 'ready\n'))
}

async function rpcAddress(config: Config): Promise<Verdict> {
  const { rpcListen, adminHost, adminPort } = config
  if (rpcListen === 'off') return ok('turned off')
  const addresses = rpcListen === 'socket' ? MODES_WITH_SOCKETS.map((mode) => socketIn(config, mode)) : [rpcListen]
  for (const address of addresses) {
    if (address.kind !== 'unix') {
      const isRunning = async () => adminPort === 0 || isAdminPort(adminHost, adminPort)
      const reason = await whyNotFree(address.host, address.port, 'RPC_LISTEN', isRunning)
      if (reason !== undefined) return wrong(reason)
      continue
    }
    try {
      requireSocketAt(address.path)
    } catch (error) {
      return wrong(`${error instanceof Error ? error.message : address.path}; no process can listen there`)
    }
  }
  return ok(rpcListen === 'socket' ? `a socket in ${config.dataDir}` : formatAddress(rpcListen))
}

/** As `serve` checks before it is ready: for a gateway, which needs both, or a survey service, which needs the token service. */
async function serviceElsewhere(service: 'token' | 'survey', address: Address, config: Config): Promise<Verdict> {
  const { connectTo } = await import('../compose/remote.js') // loads gRPC: only here
  const remote = connectTo(service, address, config, config.surveyServiceUrl ? 'gateway' : 'survey')
  const [absence] = await remote.absent()
  await remote.close()
  return absence ? wrong(`${remote.url}: ${inOneLine(absence.cause)}`) : ok(`serves at ${remote.url}`)
}

async function server(config: Config): Promise<Verdict> {
  const { adminHost, adminPort } = config
  if (adminPort === 0) return ok('not asked, ADMIN_PORT is 0')
  const address = `${hostInUrl(adminHost)}:${adminPort}`
  try {
    const found = await answer(adminHost, adminPort, '/readyz')
    const { status, text } = found
    if (!isReadiness(found))
      return wrong(`another program answers at ${address}, status ${status}; choose another ADMIN_PORT`)
    if (status !== 200) return wrong(`running at ${address}, not ready: ${inOneLine(text.slice(0, 200))}`)
    if (await mayBeOurs(config)) return ok(`running and ready at ${address}`)
    return odd(
      `a process is ready at ${address}, but none has a socket in ${config.dataDir}: does it use another DATA_DIR?`,
    )
  } catch (error) {
    if (errorCode(error, '') === 'ECONNREFUSED') return ok(`not running on ADMIN_PORT ${adminPort}`)
    return wrong(`/readyz at ${address} does not answer: ${reasonOf(error)}`)
  }
}

interface Answer {
  readonly status: number | undefined
  readonly type: string | undefined
  readonly text: string
}

/** Not by fetch, which refuses ports that it takes for those of other protocols. */
function answer(host: string, port: number, path: string): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const request = get({ host, port, path, agent: false }, (response) => {
      const { statusCode: status, headers } = response
      textOf(response).then((text) => resolve({ status, type: headers['content-type'], text }), reject)
    })
    const late = setTimeout(() => request.destroy(new Error(`not within ${ANSWER_TIMEOUT_MS} ms`)), ANSWER_TIMEOUT_MS)
    request.on('error', reject).on('close', () => clearTimeout(late))
  })
}

const MODES_WITH_SOCKETS = ['all', 'token', 'survey'] as const

/** False when services of this configuration have sockets, and no process listens on any. */
async function mayBeOurs(config: Config): Promise<boolean> {
  const { rpcListen, tokenServiceUrl, surveyServiceUrl } = config
  if (rpcListen !== 'socket' || tokenServiceUrl || surveyServiceUrl) return true
  const sockets = MODES_WITH_SOCKETS.map((mode) => socketIn(config, mode).path)
  if (sockets.some(isTooLongForSocket)) return true
  const states = await Promise.all(sockets.map(stateOfSocket))
  return states.some((state) => state === 'in use' || state === 'forbidden')
}
