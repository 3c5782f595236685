// What the doctor looks at, one function per line of its report: what keeps a service from starting, or from being safe.
import { accessSync, constants, existsSync, readFileSync, statfsSync, statSync } from 'node:fs'
import { get } from 'node:http'
import path from 'node:path'
import { text as textOf } from 'node:stream/consumers'
import { type Address, formatAddress, hostInUrl } from '../../services/rpc/address.js'
import type { Caller } from '../../services/rpc/callers.js'
import { reasonOf } from '../../services/rpc/service-error.js'
import type { CopiedSchema } from '../../services/storage/copy/copy-stores.js'
import { DatabaseRefused } from '../../services/storage/database-refused.js'
import { type Migration, newerSchema } from '../../services/storage/migration.js'
import { areNeeded } from '../compose/absences.js'
import { surveyCopy, tokenCopy } from '../compose/copied-schemas.js'
import { inspectDatabase, isThere } from '../compose/database-file.js'
import { type Config, RPC_ADDRESSES, usesTls } from '../config.js'
import { errorCode } from '../error-code.js'
import { CommandError } from '../exit.js'
import { isLoopback } from '../loopback.js'
import { fewOpenFiles } from '../open-files.js'
import { userName } from '../owner.js'
import type { Database } from '../settings.js'
import { inShell } from '../shell.js'
import { CERTIFICATE_SOON_MS, endOf } from '../tls-files.js'
import { unprotectedDatabase } from '../unprotected-database.js'
import { untrustedProxy } from '../untrusted-proxy.js'

export type Verdict = {
  /** `odd` is worth a look and fails nothing. */
  readonly state: 'ok' | 'odd' | 'wrong'
  /** Of what is not ok: what it is, where, and behind the last semicolon what to do. */
  readonly detail: string
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
  'token database': ({ tokenDatabase, tokenServiceUrl }) =>
    database(tokenDatabase, 'TOKEN_DATABASE_URL', tokenCopy, tokenServiceUrl !== undefined),
  'survey database': ({ surveyDatabase, surveyServiceUrl, surveyProviderUrl }) =>
    database(surveyDatabase, 'SURVEY_DATABASE_URL', surveyCopy, (surveyServiceUrl ?? surveyProviderUrl) !== undefined),
  'disk space': diskSpace,
  clock,
  certificate,
  'public address': publicAddress,
  'admin address': adminAddress,
  'open files': openFiles,
  'token service': (config) => config.tokenServiceUrl && serviceElsewhere('token', config.tokenServiceUrl, config),
  'survey service': (config) => config.surveyServiceUrl && serviceElsewhere('survey', config.surveyServiceUrl, config),
  'survey provider': (config) => config.surveyProviderUrl && surveyProvider(config.surveyProviderUrl, config),
  server,
}

function dataDirectory({ dataDir, tokenServiceUrl, surveyServiceUrl }: Config): Verdict | undefined {
  try {
    if (isThere(dataDir)) return privateDirectory(dataDir)
  } catch (error) {
    if (error instanceof CommandError) return hidden(error)
    throw error
  }
  if (tokenServiceUrl && surveyServiceUrl) return undefined
  return odd(`${dataDir} does not exist yet; the first start creates it`)
}

/** From this user. */
function hidden({ message, hint }: CommandError): Verdict {
  return wrong([message, hint].join('; '))
}

function privateDirectory(directory: string): Verdict {
  const stat = statSync(directory)
  if (!stat.isDirectory()) return wrong(`${directory} is not a directory; move it away, or correct DATA_DIR`)
  const { mode, uid } = stat
  const self = process.getuid?.()
  if (self !== undefined && self !== 0 && uid !== self) {
    const owner = userName(uid)
    return wrong(
      `${directory} belongs to ${owner}; run this as ${owner} if that is the service's user, or correct DATA_DIR`,
    )
  }
  if ((mode & 0o077) !== 0) return wrong(`${directory} is open to others; run: chmod 700 ${inShell(directory)}`)
  try {
    accessSync(directory, constants.W_OK)
  } catch (error) {
    const code = errorCode(error, 'unknown')
    const toDo = code === 'EACCES' ? `run: chmod 700 ${inShell(directory)}` : 'mount it so that it can be written'
    return wrong(`${directory} cannot be written (${code}); ${toDo}`)
  }
  return ok(`${directory}, for its owner alone`)
}

/** @param isElsewhere whether its service is: then no database need be here */
function database(where: Database, variable: string, schemas: CopiedSchema, isElsewhere: boolean): ReturnType<Check> {
  if (where.kind === 'postgres') return postgres(where.url, variable, schemas)
  return sqliteFile(where.file, variable, schemas, isElsewhere)
}

function sqliteFile(
  file: string,
  variable: string,
  { sqlite }: CopiedSchema,
  isElsewhere: boolean,
): Verdict | undefined {
  try {
    const facts = inspectDatabase(file, sqlite)
    if (!facts && isElsewhere) return undefined
    if (!facts || facts.schemaVersion === 0) return odd(`${file} holds nothing yet; the first start creates it`)
    if (facts.integrity !== 'ok') return wrong(`${file} is damaged: ${inOneLine(facts.integrity)}; restore a backup`)
    if ((facts.mode & 0o077) !== 0) return wrong(`${file} is open to others; run: chmod 600 ${inShell(file)}`)
    return ok(`schema version ${facts.schemaVersion}, intact${migrated(facts.schemaVersion, sqlite.migrations)}`)
  } catch (error) {
    if (error instanceof CommandError) return hidden(error)
    if (error instanceof DatabaseRefused) return wrong(error.message)
    return wrong(`${file} cannot be read: ${reasonOf(error)}; free it, or correct ${variable}`)
  }
}

async function postgres(url: string, variable: string, { postgres: schema }: CopiedSchema): Promise<Verdict> {
  const { examine } = await import('../../services/storage/postgres/open.js') // loads the driver: only here
  try {
    const { version, flaws } = await examine(url, schema)
    if (flaws.length > 0) return wrong(flaws.map(({ what, state, cause }) => `${what} ${state}: ${cause}`).join('; '))
    if (version === 0) return odd('PostgreSQL has no schema yet; the first start creates it')
    const detail = `PostgreSQL, schema version ${version}${migrated(version, schema.migrations)}`
    const danger = unprotectedDatabase(url)
    return danger === undefined ? ok(detail) : odd(`${detail}; ${danger}`)
  } catch (error) {
    if (error instanceof DatabaseRefused) return wrong(error.message)
    return wrong(`PostgreSQL cannot be used: ${reasonOf(error)}; start or mend it, or correct ${variable}`)
  }
}

function migrated(version: number, migrations: readonly Migration[]): string {
  if (version < migrations.length) return '; the next start migrates it'
  const newer = newerSchema(version, migrations)
  return newer === undefined ? '' : `; ${newer}`
}

export function inOneLine(text: string): string {
  return text.trim().replace(/\s*\n\s*/g, '; ')
}

/** Of the disk with the least of those that the data are on. */
function diskSpace({ dataDir, ...databases }: Config): Verdict {
  const folders = [dataDir, ...filesOf(databases).map(path.dirname)].filter(existsSync)
  const disks = folders.map((folder) => ({ folder, free: freeOn(folder) }))
  const [least] = disks.sort((one, other) => one.free - other.free)
  if (!least) return ok('nothing stored yet')
  const detail = `${(least.free / 1024 ** 3).toFixed(1)} GiB free on the disk of ${least.folder}`
  if (least.free < NO_DISK_BYTES) return wrong(`${detail}, and writes are about to fail; make room there`)
  return least.free < LOW_DISK_BYTES ? odd(`${detail}; make room there`) : ok(detail)
}

function freeOn(folder: string): number {
  const { bavail, bsize } = statfsSync(folder)
  return bavail * bsize
}

function filesOf({ tokenDatabase, surveyDatabase }: Pick<Config, 'tokenDatabase' | 'surveyDatabase'>): string[] {
  return [tokenDatabase, surveyDatabase].flatMap((database) => (database.kind === 'sqlite' ? [database.file] : []))
}

/** Lifetimes depend on the clock: one that went back keeps things alive for longer. */
function clock(databases: Config): Verdict {
  const now = Date.now()
  const time = new Date(now).toISOString()
  if (now < EARLIEST_NOW_MS) return wrong(`the clock says ${time}; set it`)
  for (const file of filesOf(databases).flatMap((name) => [name, `${name}-wal`])) {
    const aheadMs = existsSync(file) ? statSync(file).mtimeMs - now : 0
    if (aheadMs <= CLOCK_TOLERANCE_MS) continue
    const when = `${Math.round(aheadMs / 1000)} s in the future`
    return wrong(`${file} was written ${when}, so the clock went back; set it, or, if it is right, wait until then`)
  }
  return ok(time)
}

const REPLACE = 'replace it, with its key in RPC_TLS_KEY: running processes notice'

function certificate(config: Config): Verdict | undefined {
  if (!usesTls(config, RPC_ADDRESSES)) return undefined
  const endsAtMs = endOf(readFileSync(config.rpcTlsCert, 'utf8')) // readConfig has read it before
  const detail = `${config.rpcTlsCert} ends at ${new Date(endsAtMs).toISOString()}`
  if (endsAtMs < Date.now()) return wrong(`${detail}, which is past; ${REPLACE}`)
  return endsAtMs - Date.now() < CERTIFICATE_SOON_MS ? odd(`${detail}; ${REPLACE}`) : ok(detail)
}

function publicAddress(config: Config): Verdict {
  const { publicUrl, host } = config
  const aboutProxy = untrustedProxy(config)
  if (aboutProxy !== undefined) return odd(aboutProxy)
  if (publicUrl.protocol === 'https:') return ok(publicUrl.origin)
  if (isLoopback(publicUrl.hostname) && isLoopback(host)) return ok(`${publicUrl.origin}, this machine only`)
  if (isLoopback(publicUrl.hostname)) {
    return wrong(
      `HOST is ${host} but PUBLIC_URL is ${publicUrl.origin}; set PUBLIC_URL to the https address people use`,
    )
  }
  const danger = `${publicUrl.origin} is not https: tokens and passwords travel in the clear`
  return wrong(`${danger}; set PUBLIC_URL to the https address of the proxy in front`)
}

function adminAddress({ adminHost, adminPort }: Config): Verdict {
  if (adminPort === 0) return odd('turned off: no health checks, no metrics; set ADMIN_PORT')
  const address = `${hostInUrl(adminHost)}:${adminPort}`
  if (isLoopback(adminHost)) return ok(`${address}, this machine only`)
  return odd(`${address}; make sure that only your monitoring reaches it`)
}

/** Of this command: what starts the service may set another limit. */
function openFiles(config: Config): Verdict {
  const aboutFiles = fewOpenFiles(config)
  return aboutFiles === undefined ? ok('as many as HTTP_MAX_CONNECTIONS needs') : odd(aboutFiles)
}

/** As `serve` checks before it is ready: for a gateway, which needs both, or a survey service, which needs the token service. */
async function serviceElsewhere(
  service: 'token' | 'survey',
  addresses: readonly Address[],
  config: Config,
): Promise<Verdict> {
  const { connectTo } = await import('../compose/remote.js') // loads gRPC: only here
  const absentFor = async (caller: Caller) => {
    const remote = connectTo(service, addresses, config, caller)
    const absent = await remote.absent()
    await remote.close()
    return absent
  }
  const own = config.surveyServiceUrl ? 'gateway' : 'survey'
  const absent = await absentFor(own)
  const where = addresses.map(formatAddress).join(', ')
  if (absent.length === 0) return ok(`serves at ${where}`)
  if (usesTls(config, RPC_ADDRESSES) && (await absentFor('operator')).length === 0)
    return odd(
      `serves at ${where}, and knows this certificate as operator, which is enough for commands; for a ${own}, name it in RPC_CALLERS there`,
    )
  const faults = absent.map(({ what, cause }) => `${what}: ${inOneLine(cause)}`).join('; ')
  const toDo = `start or mend it, or correct ${service.toUpperCase()}_SERVICE_URL`
  return areNeeded(absent) ? wrong(`${faults}; ${toDo}`) : odd(`serves at another address; ${faults}; ${toDo}`)
}

async function surveyProvider(address: Address, config: Config): Promise<Verdict> {
  const { createProviderClient, introduce } = await import('../compose/provider-part.js') // loads gRPC: only here
  const client = createProviderClient(config, address, () => undefined)
  const { good, cause } = await introduce(client)
  client.close()
  const where = formatAddress(address)
  if (good !== undefined) return ok(`${good}, answers at ${where}`)
  return wrong(`${where}: ${inOneLine(cause)}; start or mend it, or correct SURVEY_PROVIDER_URL`)
}

async function server({ adminHost, adminPort }: Config): Promise<Verdict> {
  if (adminPort === 0) return ok('not asked, ADMIN_PORT is 0')
  const address = `${hostInUrl(adminHost)}:${adminPort}`
  try {
    const { status, text } = await answer(adminHost, adminPort, '/readyz')
    if (status === 200 && text === 'ready\n') return ok(`running and ready at ${address}`)
    if (status === 200 && text.startsWith('ready\n'))
      return odd(`running at ${address}; ${inOneLine(text.slice(0, 200))}; its log says why`)
    return wrong(`/readyz at ${address} answers ${status}: ${inOneLine(text.slice(0, 200))}; its log says why`)
  } catch (error) {
    if (errorCode(error, '') === 'ECONNREFUSED') return ok(`not running on ADMIN_PORT ${adminPort}`)
    const toDo = 'end what hangs there, or correct ADMIN_HOST and ADMIN_PORT'
    return wrong(`/readyz at ${address} does not answer: ${reasonOf(error)}; ${toDo}`)
  }
}

/** Not by fetch, which refuses ports that it takes for those of other protocols. */
function answer(host: string, port: number, target: string): Promise<{ status: number | undefined; text: string }> {
  return new Promise((resolve, reject) => {
    const request = get({ host, port, path: target, agent: false }, (response) => {
      textOf(response).then((text) => resolve({ status: response.statusCode, text }), reject)
    })
    const late = setTimeout(() => request.destroy(new Error(`not within ${ANSWER_TIMEOUT_MS} ms`)), ANSWER_TIMEOUT_MS)
    request.on('error', reject).on('close', () => clearTimeout(late))
  })
}
