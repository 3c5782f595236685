// Reads the configuration from an environment. settings.ts lists the variables.
import { isUtf8 } from 'node:buffer'
import { readFileSync } from 'node:fs'
import path from 'node:path'
import type { Address } from '../services/rpc/address.js'
import { errorCode } from './error-code.js'
import { isOfDatabase } from './own-files.js'
import { type ConfigProblem, type Database, type Setting, settings } from './settings.js'
import { readTlsFiles } from './tls-files.js'

type Settings = typeof settings

/** Every setting, parsed. */
export type Config = { readonly [Name in keyof Settings]: ReturnType<Settings[Name]['parse']> }

export type Environment = Readonly<Record<string, string | undefined>>

/** The configuration is wrong; holds every problem found. */
export class ConfigError extends Error {
  override readonly name = 'ConfigError'

  constructor(readonly problems: readonly ConfigProblem[]) {
    super(problems.map(({ variable, message }) => `${variable} ${message}`).join('\n'))
  }
}

export type ConfigRow = {
  readonly variable: string
  /** As written; secrets masked. */
  readonly value: string
  readonly source: 'default' | 'environment' | 'file'
  readonly about: string
}

interface Written {
  readonly text: string
  readonly source: ConfigRow['source']
}

/** Settings that can hold an https:// address, which needs the certificate files. */
export const RPC_ADDRESSES = ['rpcListen', 'tokenServiceUrl', 'surveyServiceUrl', 'surveyProviderUrl'] as const
export type RpcAddressSetting = (typeof RPC_ADDRESSES)[number]

/**
 * `used`: the addresses this process uses; the certificate files are read only if one of them needs them.
 * @throws ConfigError naming every variable that is wrong.
 */
export function readConfig(env: Environment, used: readonly RpcAddressSetting[] = []): Config {
  const reader = new Reader(env)
  const entries = Object.entries(settings).map(([name, row]) => [name, reader.parse(row)] as const)
  // Each value was parsed by its own row; a row without a value has left a problem behind.
  const config = Object.fromEntries(entries) as Config
  reader.problems.push(...contradictions(config, reader.problems))
  if (usesTls(config, used)) reader.problems.push(...readTlsFiles(config).problems)
  if (reader.problems.length > 0) throw new ConfigError(reader.problems)
  return config
}

/** Every variable with its value and where that comes from. @throws ConfigError like readConfig. */
export function describeConfig(env: Environment): ConfigRow[] {
  readConfig(env, RPC_ADDRESSES)
  const reader = new Reader(env)
  return Object.values(settings).map((row: Setting<unknown>) => {
    const { text, source } = reader.written(row)
    const value = row.isSecret ? maskPassword(text) : text
    return { variable: row.variable, value, source, about: row.about }
  })
}

/** It would be taken for the beginning of a relative path. */
const SPACE_BEFORE_PATH = /^(?:sqlite|unix):\s|,\s*unix:\s/

class Reader {
  readonly problems: ConfigProblem[] = []
  readonly #env: Environment

  constructor(env: Environment) {
    this.#env = env
  }

  parse(row: Setting<unknown>): unknown {
    const { text, source } = this.written(row)
    if (this.problems.some((problem) => problem.variable === `${row.variable}_FILE`)) return undefined // that problem says it all
    try {
      if (text !== text.trim()) throw new Error('must not begin or end with a space')
      if (SPACE_BEFORE_PATH.test(text)) throw new Error('must not have a space after its first colon')
      return row.parse(text)
    } catch (error) {
      const isReported = this.problems.some(({ variable }) => variable === row.variable)
      // a default that is wrong follows from a wrong variable, which is reported itself
      if (source !== 'default' && !isReported) this.problems.push(invalid(row.variable, source, error))
      return undefined
    }
  }

  /** The text of a setting and where it comes from. A variable set to the empty string counts as not set. */
  written(row: Setting<unknown>): Written {
    const { variable, fallback } = row
    const text = this.#env[variable]
    const file = row.isSecret ? this.#env[`${variable}_FILE`] : undefined
    if (file) {
      if (text) this.problems.push({ variable, message: `is set twice: by ${variable} and by ${variable}_FILE` })
      return { text: this.#contentOf(file, variable), source: 'file' }
    }
    if (text) return { text, source: 'environment' }
    return { text: typeof fallback === 'string' ? fallback : fallback(this.#textOf), source: 'default' }
  }

  readonly #textOf = (variable: string): string => {
    const row = Object.values(settings).find((candidate) => candidate.variable === variable)
    if (!row) throw new Error(`no setting is called ${variable}`)
    return this.written(row).text
  }

  #contentOf(file: string, variable: string): string {
    try {
      const bytes = readFileSync(file)
      const text = bytes.toString().replace(/\r?\n$/, '')
      const flaw = isUtf8(bytes) ? flawOf(text) : 'is not UTF-8'
      if (flaw === undefined) return text
      this.problems.push({ variable: `${variable}_FILE`, message: `names a file that ${flaw}` })
      return ''
    } catch (error) {
      const reason = errorCode(error, 'unreadable')
      this.problems.push({ variable: `${variable}_FILE`, message: `names a file that cannot be read (${reason})` })
      return ''
    }
  }
}

/** Whether one of these addresses uses TLS. */
export function usesTls(config: Config, addresses: readonly RpcAddressSetting[]): boolean {
  return addresses
    .flatMap<Address | string | undefined>((name) => config[name])
    .some((address) => typeof address === 'object' && address.kind === 'tls')
}

/** Values that are valid by themselves and not together. A setting that is wrong by itself has no value, and contradicts none. */
function contradictions(config: Partial<Config>, wrong: readonly ConfigProblem[]): ConfigProblem[] {
  const { tokenDatabase: token, surveyDatabase: survey, port, host, rpcListen } = config
  const isOneFile = isOfOther(token, survey) || isOfOther(survey, token)
  const socket = typeof rpcListen === 'object' && rpcListen.kind === 'unix' ? path.resolve(rpcListen.path) : undefined
  const isNoSocket = socket !== undefined && [token, survey].some((database) => isOfDatabase(socket, database))
  const isElsewhere =
    config.signInUrl || config.oidcProvidersFile || wrong.some((one) => one.variable === 'SIGN_IN_URL')
  const isNoWayIn = config.passwordSignIn === 'off' && !isElsewhere
  const isOnePort = !!port && port === config.adminPort && !!host && host === config.adminHost
  const isIdleLonger = isMore(config.sessionIdleSeconds, config.sessionTtlSeconds)
  const areHeadersLonger = isMore(config.httpHeadersTimeoutSeconds, config.httpRequestTimeoutSeconds)
  const found: readonly (ConfigProblem | false)[] = [
    isIdleLonger && problem('SESSION_IDLE_SECONDS', 'must not be more than SESSION_TTL_SECONDS'),
    areHeadersLonger && problem('HTTP_HEADERS_TIMEOUT_SECONDS', 'must not be more than HTTP_REQUEST_TIMEOUT_SECONDS'),
    isOnePort && problem('ADMIN_PORT', 'must differ from PORT on the same address'),
    isNoWayIn &&
      problem('PASSWORD_SIGN_IN', 'must be on without SIGN_IN_URL and OIDC_PROVIDERS_FILE: nobody could sign in'),
    isOneFile && problem('SURVEY_DATABASE_URL', 'must name another database than TOKEN_DATABASE_URL'),
    isNoSocket && problem('RPC_LISTEN', 'must not be a file of a database'),
  ]
  return found.filter((one) => one !== false)
}

/** Whether a database is the other, or one of the files that SQLite keeps beside it. */
function isOfOther(one: Database | undefined, other: Database | undefined): boolean {
  return one?.kind === 'sqlite' && isOfDatabase(one.file, other)
}

function invalid(variable: string, source: Written['source'], error: unknown): ConfigProblem {
  const message = error instanceof Error ? error.message : 'is invalid'
  return source === 'file'
    ? problem(`${variable}_FILE`, `names a file whose content ${message}`)
    : problem(variable, message)
}

/** Of the text of a file: nothing is taken away from it but the end of its line. */
function flawOf(text: string): string | undefined {
  if (text === '') return 'is empty'
  if (text.startsWith('\u{feff}')) return 'begins with a byte order mark: save it as UTF-8 without one'
  return /\p{Cc}/u.test(text) ? 'holds more than one line, or control characters' : undefined
}

function isMore(one: number | undefined, other: number | undefined): boolean {
  return one !== undefined && other !== undefined && one > other
}

function problem(variable: string, message: string): ConfigProblem {
  return { variable, message }
}

/** A database address without the passwords in its login and its query. */
export function maskPassword(text: string): string {
  return text.replace(/^([a-z]+:\/\/[^:/@]*:)[^@/?]+@/, '$1***@').replace(PASSWORD_IN_QUERY, '$1***')
}

const PASSWORD_IN_QUERY = new RegExp(`([?&](?:${escapable('ssl')})?${escapable('password')}=)[^&]+`, 'gi')

/** A pattern for `name` as a query may spell it: each letter as it is or as %XX. */
function escapable(name: string): string {
  return name.replace(/./g, (letter) => `(?:${letter}|%${letter.charCodeAt(0).toString(16)})`)
}
