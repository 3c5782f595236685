// The log: one JSON object per line on stderr. Every line is built here from named fields, so that no URL, query, header,
// body or credential can slip in.
import { createRequire } from 'node:module'
import { Code } from '@connectrpc/connect'
import { type DestinationStream, pino } from 'pino'
import type { RequestRecord } from '../../gateway/app.js'
import { ErrorReason } from '../../gen/surveyauth/v1/error_pb.js'
import type { CallRecord } from '../../services/rpc/dispatcher.js'
import type { ProviderFailure } from '../../services/survey/provider/provider-failure.js'
import type { ProviderEvent } from '../../services/token/sign-in-methods.js'
import type { Removed } from '../../services/token/store/token-store.js'
import type { Config } from '../config.js'
import { escaped, harmlessLines } from '../output.js'
import { openStderr, type Stderr } from './stderr.js'

/** Number of rows by table, of either database. */
export type RemovedRows = Readonly<Partial<Record<keyof Removed | 'surveyEvents' | 'answers', number>>>

export interface Log {
  request(record: RequestRecord): void
  call(record: CallRecord): void
  /** A step of a sign-in at an OpenID Provider. */
  provider(event: ProviderEvent): void
  removed(removed: RemovedRows): void
  /** A defect, or a failure of background work: logged with its stack. */
  failure(what: string, error: unknown, requestId?: string): void
  /** A fixed text about the life of the process. */
  note(text: string): void
  /** A fixed text about something the operator should change. */
  warning(text: string): void
  /** Fulfils when everything is written, at `byMs` of performance.now() at the latest; for the end of the process. */
  end(byMs: number): Promise<void>
}

/** Looks like one of our credentials; a safety net for error messages, which may quote the input that caused them. */
const CREDENTIAL = /\b(sac|sat|sart|sas|sase)_[\w-]{16,}/g

export function createLog(config: Pick<Config, 'logLevel' | 'logFormat'>, stream: NodeJS.WritableStream): Log {
  const isTerminal = 'isTTY' in stream && stream.isTTY === true
  const isPretty = config.logFormat === 'pretty' || (config.logFormat === 'auto' && isTerminal)
  const isWaitedFor = isTerminal || stream !== process.stderr
  const stderr = isWaitedFor ? undefined : openStderr((text) => log.warning(text))
  const target = stderr ? inBytes(stderr.destination) : stream
  const log = overDestination(config.logLevel, shownOn(target, { isPretty, isTerminal }), stderr)
  return log
}

/** The types of pino's own destinations know of strings only. */
function inBytes(destination: DestinationStream): DestinationStream {
  return { write: (line) => destination.write(Buffer.from(line) as never) }
}

const require = createRequire(import.meta.url)

/** An error's message may quote text written by others. */
function shownOn(target: DestinationStream, { isPretty = false, isTerminal = false }): DestinationStream {
  if (isPretty) return readable(target)
  return isTerminal ? { write: (line) => target.write(escaped(line)) } : target
}

function readable(target: DestinationStream): DestinationStream {
  const { prettyFactory } = require('pino-pretty') as typeof import('pino-pretty') // commands rarely need it: only here
  const pretty = prettyFactory({ translateTime: 'SYS:HH:MM:ss.l' })
  const shown = (_: string, value: unknown) => (typeof value === 'string' ? harmlessLines(value) : value)
  return { write: (line) => target.write(pretty(JSON.parse(line, shown))) }
}

let lastMs = 0
let lastTime = ''

/** The `time` member of a line, made once per millisecond. */
function isoTime(): string {
  const now = Date.now()
  if (now !== lastMs) {
    lastMs = now
    lastTime = `,"time":"${new Date(now).toISOString()}"`
  }
  return lastTime
}

function overDestination(level: string, destination: DestinationStream, stderr?: Stderr): Log {
  const flush = () => stderr?.destination.flush() // for lines that should not wait
  const logger = pino({ level, base: null, timestamp: isoTime }, destination)
  return {
    request({ route, method, status, outcome, durationMs, requestId, appid }) {
      const line = { route, method, status, outcome, ms: rounded(durationMs), request_id: requestId, appid }
      logger[status >= 500 ? 'error' : 'info'](line, 'request')
    },
    call({ rpc, caller, requestId, code, reason, durationMs }) {
      const level = code === Code.Unavailable || code === Code.DeadlineExceeded ? 'warn' : 'debug'
      if (!logger.isLevelEnabled(level)) return
      const line = { rpc, caller, ms: rounded(durationMs), request_id: requestId }
      logger[level]({ ...line, code: codeName(code), reason: reasonName(reason) }, 'rpc')
    },
    provider({ provider, step, outcome, failure, requestId }) {
      const level = levels[outcome]
      const line = { provider, step, outcome, detail: failure?.detail, request_id: requestId }
      logger[level](line, failure ? 'a sign-in at a provider failed' : 'a provider has answered')
    },
    removed(removed) {
      logger.info({ ...removed }, 'ended rows removed')
    },
    failure(what, error, requestId) {
      logger.error({ request_id: requestId, error: describe(error) }, what)
      flush()
    },
    note(text) {
      logger.info(text)
      flush()
    },
    warning(text) {
      logger.warn(text)
      flush()
    },
    end: (byMs) => stderr?.end(byMs) ?? Promise.resolve(),
  }
}

/** What the person or the provider decides is no warning. */
const levels: Readonly<Record<ProviderEvent['outcome'], 'debug' | 'info' | 'warn'>> = {
  ok: 'debug',
  denied: 'info',
  not_allowed: 'info',
  expired: 'info',
  keys_changed: 'warn',
  unavailable: 'warn',
  misconfigured: 'warn',
}

/** Name of a gRPC code in lower snake case; `ok` when there was no failure. */
export function codeName(code: Code | undefined): string {
  if (code === undefined) return 'ok'
  return (Code[code] ?? 'Unknown').replace(/(?<=[a-z])(?=[A-Z])/g, '_').toLowerCase()
}

/** Of a call to a survey provider. */
export function outcomeName(outcome: ProviderFailure['outcome'] | undefined): string {
  return typeof outcome === 'string' ? outcome : codeName(outcome)
}

export function reasonName(reason: ErrorReason | undefined): string | undefined {
  return reason === undefined ? undefined : ErrorReason[reason].toLowerCase()
}

function rounded(ms: number): number {
  return Math.round(ms * 100) / 100
}

function describe(error: unknown): { name: string; message: string; stack?: string | undefined } {
  if (!(error instanceof Error)) return { name: typeof error, message: 'a value that is not an Error was thrown' }
  const { name, message, stack } = error
  return { name, message: withoutCredentials(message), stack: stack && withoutCredentials(stack) }
}

function withoutCredentials(text: string): string {
  return text.replace(CREDENTIAL, '$1_***')
}
