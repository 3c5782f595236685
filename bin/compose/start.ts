// Starts a process: the whole service, or one part of it. What a part needs from elsewhere is reached by RPC.
import { setTimeout } from 'node:timers/promises'
import type { DescService } from '@bufbuild/protobuf'
import type { Client } from '@connectrpc/connect'
import { createLook, type Look } from '../../gateway/pages/look.js'
import { LimitService } from '../../gen/surveyauth/internal/v1/limit_service_pb.js'
import { AccountService } from '../../gen/surveyauth/v1/account_service_pb.js'
import { SurveyService } from '../../gen/surveyauth/v1/survey_service_pb.js'
import { TokenService } from '../../gen/surveyauth/v1/token_service_pb.js'
import type { Address } from '../../services/rpc/address.js'
import { type Caller, mayCall } from '../../services/rpc/callers.js'
import { clientOf, createDirectDoor } from '../../services/rpc/client.js'
import { Dispatcher } from '../../services/rpc/dispatcher.js'
import type { TlsMaterial } from '../../services/rpc/listener.js'
import type { RpcServer } from '../../services/rpc/rpc-server.js'
import type { CopiedSchema } from '../../services/storage/copy/copy-stores.js'
import type { Rounds } from '../../services/storage/rounds.js'
import { DISK_FAILURE } from '../../services/storage/sqlite/disk-failure.js'
import { startHashingThreads } from '../../services/token/password/threads.js'
import { readBrandFile } from '../brand-file.js'
import { buildName } from '../build-info.js'
import { type Config, usesTls } from '../config.js'
import { CommandError } from '../exit.js'
import type { Database } from '../settings.js'
import { type Readiness, startAdminHttp } from '../telemetry/admin-http.js'
import { createLog, type Log } from '../telemetry/log.js'
import { createMetrics } from '../telemetry/metrics.js'
import { createTracing } from '../telemetry/tracing.js'
import { unprotectedDatabase } from '../unprotected-database.js'
import { areNeeded, tellAbsences } from './absences.js'
import { type Mode, rpcAddressOf, surveyServiceUrlOf, tokenServiceUrlOf, usedAddresses } from './addresses.js'
import { surveyCopy, tokenCopy } from './copied-schemas.js'
import { type GatewayPart, startGatewayPart, warnOfGateway } from './gateway-part.js'
import { cannotListen, type HeldPort, holdPort, letGo, urlOf } from './listen.js'
import { createObservers, type Observers } from './observers.js'
import { tellingLacks } from './older-services.js'
import type { Absence, Part, StorePart } from './part.js'
import { openProviderPart, type ProviderPart } from './provider-part.js'
import { connectTo, type Remote } from './remote.js'
import { startRpcPart } from './rpc-part.js'
import type { Overrides, Running } from './running.js'
import { diskFree, lastBackup, sqliteFilesOf } from './sqlite-facts.js'
import { beforeOpening, closeWhileEmpty, makePrivateDirectory } from './stores.js'
import { openSurveyPart } from './survey-part.js'
import { forwardClock, pooledRandomBytes, type TimeAndChance } from './time-and-chance.js'
import { readTls, watchTls } from './tls.js'
import { openTokenPart } from './token-part.js'

/** Part of the shutdown time reserved for closing the databases after the last connection, but never more than half. */
const CLOSING_MS = 2_000
/** How often `grpc.health.v1` follows the databases. */
const HEALTH_EVERY_MS = 1_000

/** Starts what `mode` names; when something fails, what was started before it is stopped again. */
export async function start(mode: Mode, config: Config, overrides: Overrides = {}): Promise<Running> {
  const assembly = new Assembly(mode, config, overrides)
  try {
    return await assembly.start()
  } catch (error) {
    await assembly.stop().catch(() => undefined) // which it has logged; why it did not start says more
    throw error
  }
}

class Assembly {
  readonly #mode: Mode
  readonly #config: Config
  readonly #overrides: Overrides
  readonly #clock: TimeAndChance
  readonly #log: Log
  readonly #metrics = createMetrics()
  readonly #observers: Observers
  readonly #dispatcher: Dispatcher
  #stage: 'starting' | 'running' | 'shutting down' = 'starting'
  /** Stops what has been started, from the last to the first; each is told how long what is in flight may still take. */
  readonly #undo: ((graceMs: number) => Promise<unknown>)[] = []
  /** What must be ready. */
  readonly #parts: Part[] = []
  /** What identifies this process over TLS; undefined when it does not use TLS. */
  readonly #tls: TlsMaterial | undefined
  readonly #look: Look
  #door: RpcServer | undefined
  readonly #stores: StorePart[] = []
  /** Of the databases in this process. */
  readonly #janitors: Rounds<unknown>[] = []
  /** What was absent at the last look. */
  #lacks: readonly Absence[] = []
  /** Services in other processes; undefined for those that are here, or that nobody here needs. */
  #tokenRemote: Remote | undefined
  #surveyRemote: Remote | undefined
  /** Of a platform, which this process reads surveys from in place of a database. */
  #surveyProvider: ProviderPart | undefined

  constructor(mode: Mode, config: Config, overrides: Overrides) {
    this.#mode = mode
    this.#config = config
    this.#overrides = overrides
    this.#log = createLog(config, overrides.logStream ?? process.stderr)
    const onSetBack = (ms: number) => {
      this.#log.warning(setBack(ms))
      this.#metrics.clockSetBack()
    }
    const now = forwardClock({ now: overrides.now ?? Date.now, onSetBack })
    const elapsed = overrides.elapsed ?? (() => performance.now())
    this.#clock = { now, elapsed, randomBytes: overrides.randomBytes ?? pooledRandomBytes() }
    this.#observers = createObservers(this.#log, this.#metrics, createTracing())
    this.#dispatcher = new Dispatcher({
      ...this.#observers.dispatcher,
      mayCall,
    })
    this.#tls = usesTls(config, usedAddresses[mode]) ? readTls(config) : undefined
    this.#look = createLook(this.#has('gateway') ? readBrandFile(config.brandFile) : undefined)
  }

  /**
   * Ports first, so that a port in use is noticed before a database is touched. The gateway last, so that no request is answered
   * before there are services.
   */
  async start(): Promise<Running> {
    const adminUrl = await this.#openAdmin()
    const publicPort = await this.#takePublicPort()
    this.#log.note(`survey-auth ${buildName()}, ${this.#mode}, starts on Node ${process.version}`)
    const rpcAddress = rpcAddressOf(this.#mode, this.#config, this.#log)
    await this.#openServices()
    if (rpcAddress) await this.#openDoor(rpcAddress)
    await this.#followHealth()
    this.#followCertificates()
    const gateway = publicPort && (await this.#startGateway(publicPort))
    this.#stage = 'running'
    return {
      url: gateway?.url ?? '',
      rpcAddress: this.#door?.address,
      adminUrl,
      log: this.#log,
      client: (service, caller) => this.#client(service, caller),
      readiness: () => this.#readiness(),
      runJanitors: async () => {
        if (this.#janitors.length === 0) throw new Error(`mode ${this.#mode} has no janitor`)
        for (const janitor of this.#janitors) await janitor.run()
      },
      close: () => this.stop(),
    }
  }

  /** Takes every step, whatever becomes of those before it, and rejects if one failed. */
  async stop(): Promise<void> {
    const wasRunning = this.#stage === 'running'
    this.#stage = 'shutting down'
    if (wasRunning) await this.#letBalancersNotice()
    const totalMs = this.#config.shutdownTimeoutSeconds * 1000
    const cutAt = performance.now() + totalMs - Math.min(CLOSING_MS, totalMs / 2)
    let isInOrder = true
    for (const step of this.#undo.splice(0).reverse()) {
      try {
        await step(Math.max(0, cutAt - performance.now()))
      } catch (error) {
        isInOrder = false
        this.#log.failure('a step of stopping failed', error)
      }
    }
    if (!isInOrder) throw new CommandError('not everything was stopped in order; the log says what failed')
  }

  /** Everything is still served, while /readyz and grpc.health.v1 say that it should be asked no more. */
  async #letBalancersNotice(): Promise<void> {
    this.#door?.setServing(false)
    await setTimeout(this.#config.drainSeconds * 1000)
  }

  #has(part: Mode): boolean {
    return this.#mode === 'all' || this.#mode === part
  }

  #add<P extends Part>(part: P): P {
    this.#parts.push(part)
    this.#undo.push(() => part.close())
    return part
  }

  #addService(service: StorePart): void {
    this.#stores.push(service)
    const janitor = this.#add(service).startJanitor()
    this.#janitors.push(janitor)
    this.#undo.push(() => janitor.stop())
  }

  async #readiness(): Promise<Readiness> {
    if (this.#stage !== 'running') return { isReady: false, lacks: [this.#stage] }
    const absent = await this.#absent()
    return { isReady: !areNeeded(absent), lacks: absent.map(inLine) }
  }

  async #absent(): Promise<Absence[]> {
    return (await Promise.all(this.#parts.map((part) => part.absent()))).flat()
  }

  /** Returns its address, unless it is turned off. It is stopped last, so that /readyz reports the shutdown. */
  async #openAdmin(): Promise<string | undefined> {
    const where = { host: this.#config.adminHost, port: this.#config.adminPort }
    if (where.port === 0) return undefined
    const admin = await startAdminHttp({
      ...where,
      readiness: () => this.#readiness(),
      metrics: this.#metrics,
    }).catch((error) => Promise.reject(cannotListen(where, 'ADMIN_PORT', error)))
    this.#undo.push(async () => admin.close())
    this.#followForMetrics()
    return urlOf({ ...where, port: admin.port })
  }

  #followForMetrics(): void {
    const files = sqliteFilesOf(this.#mode, this.#config)
    this.#metrics.follow({
      notReady: () => (this.#stage === 'running' ? namesOf(areNeeded(this.#lacks), this.#lacks) : [this.#stage]),
      readyBut: () => namesOf(!areNeeded(this.#lacks), this.#lacks),
      connections: () => new Map(this.#stores.map((part) => [part.store, part.connections()])),
      diskFree: () => diskFree(files),
      lastBackup: () => lastBackup(files),
    })
    const count = ({ name }: Error) => name === DISK_FAILURE && this.#metrics.diskFailed()
    process.on('warning', count)
    this.#undo.push(async () => process.off('warning', count))
  }

  async #takePublicPort(): Promise<HeldPort | undefined> {
    if (!this.#has('gateway')) return undefined
    const held = await holdPort(this.#config.host, this.#config.port, 'PORT')
    this.#undo.push(() => letGo(held))
    return held
  }

  /** Opens the services of this process, and connections to those it needs elsewhere. */
  async #openServices(): Promise<void> {
    const config = this.#config
    closeWhileEmpty(config.dataDir)
    if (this.#has('token')) {
      const { passwordCost } = this.#overrides
      await startHashingThreads(config.passwordHashConcurrency)
      await this.#tellOfDatabase(tokenCopy, config.tokenDatabase)
      this.#addService(await openTokenPart(config, this.#dispatcher, this.#clock, this.#observers, passwordCost))
    } else {
      this.#tokenRemote = this.#connectTo('token', tokenServiceUrlOf(config))
    }
    if (this.#has('survey') && config.surveyProviderUrl) {
      const token = this.#client(TokenService, 'survey')
      const [where, dispatcher, observers] = [config.surveyProviderUrl, this.#dispatcher, this.#observers]
      this.#surveyProvider = this.#add(
        openProviderPart(config, where, dispatcher, this.#clock, token, observers, this.#log),
      )
    } else if (this.#has('survey')) {
      const token = this.#client(TokenService, 'survey')
      await this.#tellOfDatabase(surveyCopy, config.surveyDatabase)
      this.#addService(await openSurveyPart(config, this.#dispatcher, this.#clock, token, this.#observers))
    } else if (this.#has('gateway')) {
      this.#surveyRemote = this.#connectTo('survey', surveyServiceUrlOf(config))
    }
  }

  async #tellOfDatabase(schemas: CopiedSchema, where: Database): Promise<void> {
    const danger = where.kind === 'postgres' ? unprotectedDatabase(where.url) : undefined
    if (danger !== undefined) this.#log.warning(`the ${schemas.postgres.name} database: ${danger}`)
    const said = await beforeOpening(schemas, where)
    if (said !== undefined) this.#log.note(said)
  }

  #connectTo(service: 'token' | 'survey', addresses: readonly Address[]): Remote {
    const remote = connectTo(service, addresses, this.#config, this.#has('gateway') ? 'gateway' : 'survey')
    return this.#add({ ...remote, invoke: tellingLacks(service, remote.invoke, this.#log) })
  }

  #client<S extends DescService>(service: S, caller: Caller): Client<S> {
    const elsewhere = service.typeName === SurveyService.typeName ? this.#surveyRemote : this.#tokenRemote
    return clientOf(service, elsewhere?.invoke ?? createDirectDoor(this.#dispatcher, caller))
  }

  async #openDoor(address: Address): Promise<void> {
    if (this.#config.rpcListen === 'socket') makePrivateDirectory(this.#config.dataDir) // no store makes it on PostgreSQL
    const door = await startRpcPart(this.#config, this.#dispatcher, address, this.#tls, this.#log)
    this.#door = door
    this.#undo.push((graceMs) => door.drain(graceMs))
  }

  /** Reported by the door, which serves gateways elsewhere before this process has its own, and, with causes, by the log. */
  async #followHealth(): Promise<void> {
    const tell = tellAbsences(this.#log)
    const follow = async () => {
      this.#clock.now() // so that it follows time even while nothing asks for it
      const absent = await this.#absent()
      this.#lacks = absent
      if (this.#stage === 'shutting down') return
      this.#door?.setServing(!areNeeded(absent))
      tell(absent)
    }
    await follow()
    const timer = setInterval(() => void follow(), HEALTH_EVERY_MS)
    this.#undo.push(async () => clearInterval(timer))
  }

  #followCertificates(): void {
    if (!this.#tls) return
    const remotes = [this.#tokenRemote, this.#surveyRemote, this.#surveyProvider]
    const onChange = (material: TlsMaterial) => {
      this.#door?.reloadTls(material)
      for (const remote of remotes) remote?.reconnect(material)
    }
    const [config, material, log, metrics] = [this.#config, this.#tls, this.#log, this.#metrics]
    const watch = watchTls({ config, material, onChange, log, metrics })
    this.#undo.push(async () => watch.stop())
  }

  async #startGateway(port: HeldPort): Promise<GatewayPart> {
    const isAlone = this.#has('token') && this.#config.tokenDatabase.kind === 'sqlite'
    const clients = {
      token: this.#client(TokenService, 'gateway'),
      account: this.#client(AccountService, 'gateway'),
      survey: this.#client(SurveyService, 'gateway'),
      sharedLimits: isAlone ? undefined : this.#client(LimitService, 'gateway'), // alone it has nobody to share with
    }
    const gateway = await startGatewayPart(this.#config, this.#look, port, clients, this.#clock, this.#observers)
    this.#undo.push((graceMs) => gateway.drain(graceMs))
    warnOfGateway(this.#config, this.#log)
    return gateway
  }
}

function namesOf(isAsked: boolean, absent: readonly Absence[]): readonly string[] {
  return isAsked ? absent.map(({ what }) => what) : []
}

function inLine({ what, state = 'unavailable' }: Absence): string {
  return `${what}: ${state}`
}

function setBack(ms: number): string {
  const seconds = Math.round(ms / 1000)
  return `the clock was set back by ${seconds} s; this process keeps its own time, so that nothing that has expired becomes valid again: restart it to follow the clock`
}
