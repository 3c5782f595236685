// What the command line works through: the services' own RPCs, called as operator. It calls the server that is
// configured, else one that runs on this DATA_DIR, else it opens the databases itself. That is safe beside a server too:
// every call is a transaction, and servers ask the database whether others wrote.
import { randomBytes, randomUUID } from 'node:crypto'
import type { DescService } from '@bufbuild/protobuf'
import { type Client, Code, ConnectError } from '@connectrpc/connect'
import { AdminService, type App, type User } from '../../gen/surveyauth/v1/admin_service_pb.js'
import { SurveyService } from '../../gen/surveyauth/v1/survey_service_pb.js'
import { TokenService } from '../../gen/surveyauth/v1/token_service_pb.js'
import { type Address, formatAddress } from '../../services/rpc/address.js'
import { mayCall } from '../../services/rpc/callers.js'
import { clientOf, createDirectDoor, type Invoke } from '../../services/rpc/client.js'
import { Dispatcher } from '../../services/rpc/dispatcher.js'
import { stateOfSocket } from '../../services/rpc/listener.js'
import type { CopiedSchema } from '../../services/storage/copy/copy-stores.js'
import { surveysAreElsewhere } from '../../services/survey/survey-service.js'
import { type Config, type RpcAddressSetting, readConfig } from '../config.js'
import { CommandError, EXIT, isUnanswered } from '../exit.js'
import { message, note } from '../output.js'
import type { Database } from '../settings.js'
import { endOf } from '../tls-files.js'
import { socketIn } from './addresses.js'
import { createCommandObservers } from './command-observers.js'
import { surveyCopy, tokenCopy } from './copied-schemas.js'
import { noDatabase, warnOfOwner } from './database-file.js'
import type { Part } from './part.js'
import { creating, isMade } from './stores.js'
import { openSurveyPart } from './survey-part.js'
import { readTls } from './tls.js'
import { openTokenPart } from './token-part.js'

export interface Operator {
  readonly admin: Client<typeof AdminService>
}

export interface SurveyOperator extends Operator {
  readonly survey: Client<typeof SurveyService>
}

interface Options {
  /** Makes the database if there is none; other commands then say that it is missing, rather than that it holds nothing. */
  readonly creates?: boolean
}

const WITHOUT_SURVEYS = 'listing without surveys: there are none here; if they are elsewhere, set SURVEY_SERVICE_URL'

/** Reaches AdminService for the duration of `work`. All its calls have one request id, which the audit trail shows. */
export function asOperator<T>(work: (operator: Operator) => Promise<T>, { creates = false }: Options = {}): Promise<T> {
  return connected(['tokenServiceUrl'], async ({ token, client }) =>
    work({ admin: client(AdminService, await token(creates)) }),
  )
}

/** The same, with SurveyService; `creates` is about its database. */
export function asSurveyOperator<T>(
  work: (operator: SurveyOperator) => Promise<T>,
  { creates = false }: Options = {},
): Promise<T> {
  return connected(['tokenServiceUrl', 'surveyServiceUrl'], async ({ token, survey, client }) => {
    const tokenDoor = await token(false)
    const surveyDoor = await survey(tokenDoor, creates)
    return work({ admin: client(AdminService, tokenDoor), survey: client(SurveyService, surveyDoor) })
  })
}

export interface Auditor extends Operator {
  /** undefined when no process serves surveys and there is no database of them. */
  readonly survey: Client<typeof SurveyService> | undefined
}

/** The same for commands that only read, and do without surveys where there are none. */
export function asAuditor<T>(work: (auditor: Auditor) => Promise<T>): Promise<T> {
  return connected(['tokenServiceUrl', 'surveyServiceUrl'], async ({ token, surveyIfAny, client }) => {
    const tokenDoor = await token(false)
    const surveyDoor = await surveyIfAny(tokenDoor)
    return work({ admin: client(AdminService, tokenDoor), survey: surveyDoor && client(SurveyService, surveyDoor) })
  })
}

interface Doors {
  token(creates: boolean): Promise<Invoke>
  survey(token: Invoke, creates: boolean): Promise<Invoke>
  surveyIfAny(token: Invoke): Promise<Invoke | undefined>
  /** All its calls belong to one request. */
  client<S extends DescService>(service: S, door: Invoke): Client<S>
}

/** Of a caller with such a certificate a service closes the connection, and the caller is not told why. */
function refuseEnded(config: Config): void {
  const endedAtMs = endOf(readTls(config).cert)
  if (endedAtMs > Date.now()) return
  const what = `the certificate ${config.rpcTlsCert} ended at ${new Date(endedAtMs).toISOString()}`
  throw new CommandError(what, EXIT.configuration, 'put a new one in its place, or name another in RPC_TLS_CERT')
}

async function connected<T>(used: readonly RpcAddressSetting[], work: (doors: Doors) => Promise<T>): Promise<T> {
  const config = readConfig(process.env, used)
  const opened: Part[] = []
  const requestId = randomUUID()
  const { observers, damageOr } = createCommandObservers(config)
  const dispatcher = new Dispatcher({ ...observers.dispatcher, mayCall })
  const clock = { now: Date.now, elapsed: () => performance.now(), randomBytes }
  const local = createDirectDoor(dispatcher, 'operator')

  /** A connection to the service where it runs, if it does. */
  async function connect(
    service: 'token' | 'survey',
    configured: Config['tokenServiceUrl'],
  ): Promise<Invoke | undefined> {
    const addresses = await answering(configured, [socketIn(config, 'all'), socketIn(config, service)])
    if (addresses.length === 0) return undefined
    if (addresses.some(({ kind }) => kind === 'tls')) refuseEnded(config)
    const { connectTo } = await import('./remote.js') // loads all of gRPC: only here
    const remote = connectTo(service, addresses, config, 'operator')
    opened.push(remote)
    note(`using the ${service} service at ${remote.url}`)
    await remote.choose()
    return remote.invoke
  }

  async function openSurveys(token: Invoke): Promise<Invoke> {
    opened.push(await openSurveyPart(config, dispatcher, clock, clientOf(TokenService, token), observers))
    return local
  }

  const doors: Doors = {
    async token(creates) {
      const remote = await connect('token', config.tokenServiceUrl)
      if (remote) return remote
      if (!(await isMade(tokenCopy, config.tokenDatabase))) begin(tokenCopy, config.tokenDatabase, creates)
      opened.push(await openTokenPart(config, dispatcher, clock, observers))
      return local
    },
    async survey(token, creates) {
      const remote = await connect('survey', config.surveyServiceUrl)
      if (remote) return remote
      if (config.surveyProviderUrl) return () => Promise.reject(surveysAreElsewhere())
      if (await isMade(surveyCopy, config.surveyDatabase)) return openSurveys(token)
      begin(surveyCopy, config.surveyDatabase, creates || (await isWithoutSurveys(config)))
      return openSurveys(token)
    },
    async surveyIfAny(token) {
      const remote = await connect('survey', config.surveyServiceUrl)
      if (remote) return remote
      if (await isMade(surveyCopy, config.surveyDatabase)) return openSurveys(token)
      if (!config.surveyProviderUrl) message(WITHOUT_SURVEYS)
      return undefined
    },
    client: (service, door) =>
      clientOf(service, (method, request, call) => door(method, request, { ...call, requestId })),
  }
  try {
    return await work(doors)
  } catch (error) {
    throw await withCause(damageOr(error), opened, config)
  } finally {
    for (const part of opened.reverse()) await part.close()
  }
}

/** @throws CommandError when there is no database and this command makes none */
function begin(schemas: CopiedSchema, where: Database, creates: boolean): void {
  if (!creates) throw where.kind === 'sqlite' ? noDatabase(where.file) : noTables(schemas.postgres.name)
  if (where.kind === 'sqlite') warnOfOwner(where.file)
  message(creating(schemas, where))
}

/** Whether users are here, so that surveys would be too: their database is made when it is first opened. */
async function isWithoutSurveys({ tokenDatabase, surveyDatabase }: Config): Promise<boolean> {
  return tokenDatabase.kind === surveyDatabase.kind && isMade(tokenCopy, tokenDatabase)
}

function noTables(name: string): CommandError {
  const hint = `set ${name.toUpperCase()}_DATABASE_URL to the same value as the server`
  return new CommandError(`there are no tables of the ${name} database at its address`, EXIT.failure, hint)
}

/** For a service that does not answer, what is known about why; a call that waited for it cannot know. */
async function withCause(error: unknown, parts: readonly Part[], { rpcTimeoutMs }: Config): Promise<unknown> {
  if (!isUnanswered(error)) return error
  const absent = (await Promise.all(parts.map((part) => part.absent()))).flat()
  if (absent.length === 0) return error
  const texts = absent.map(({ what, cause }) => `no answer from the ${what}: ${cause}`)
  const hint = error.code === Code.DeadlineExceeded ? `waited ${rpcTimeoutMs / 1000} s, RPC_TIMEOUT_MS` : undefined
  return new CommandError(texts.join('; '), EXIT.unavailable, hint)
}

/**
 * The addresses that are configured, without sockets on which no process listens; else the first of these sockets on which one does.
 * @throws CommandError when only such sockets are configured
 */
async function answering(configured: Config['tokenServiceUrl'], sockets: readonly Address[]): Promise<Address[]> {
  if (!configured) return (await allAnswering(sockets)).slice(0, 1)
  const found = await allAnswering(configured)
  if (found.length > 0) return found
  throw new CommandError(
    `no server answers at ${configured.map(formatAddress).join(' or ')}, or this user may not connect to it`,
    EXIT.unavailable,
    'start the server, or set the variable that names it to another one',
  )
}

async function allAnswering(addresses: readonly Address[]): Promise<Address[]> {
  const found: Address[] = []
  for (const address of addresses) {
    if (address.kind !== 'unix' || (await stateOfSocket(address.path)) === 'in use') found.push(address)
  }
  return found
}

export function pagesOfApps(admin: Operator['admin']): AsyncIterable<readonly App[]> {
  return pagesOf(async (pageToken) => {
    const page = await admin.listApps({ pageToken })
    return { rows: page.apps, nextPageToken: page.nextPageToken }
  })
}

export function pagesOfUsers(admin: Operator['admin']): AsyncIterable<readonly User[]> {
  return pagesOf(async (pageToken) => {
    const page = await admin.listUsers({ pageSize: 1000, pageToken })
    return { rows: page.users, nextPageToken: page.nextPageToken }
  })
}

/** undefined when the service answers NotFound. */
export async function unlessMissing<T>(answer: Promise<T>): Promise<T | undefined> {
  try {
    return await answer
  } catch (error) {
    if (error instanceof ConnectError && error.code === Code.NotFound) return undefined
    throw error
  }
}

/** The pages of a list, each fetched when the one before it has been consumed. */
export async function* pagesOf<Row>(
  fetchPage: (pageToken: string) => Promise<{ readonly rows: readonly Row[]; readonly nextPageToken: string }>,
): AsyncGenerator<readonly Row[]> {
  let pageToken = ''
  do {
    const page = await fetchPage(pageToken)
    yield page.rows
    pageToken = page.nextPageToken
  } while (pageToken !== '')
}

/** The first item of a list for which `holds` is true; further pages are not fetched. */
export async function findIn<Item>(
  pages: AsyncIterable<readonly Item[]>,
  holds: (item: Item) => boolean | Promise<boolean>,
): Promise<Item | undefined> {
  for await (const page of pages) {
    for (const item of page) if (await holds(item)) return item
  }
  return undefined
}
