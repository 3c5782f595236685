// Every variable of the program, once: the table drives parsing, defaults, help and `survey-auth config`.
import path from 'node:path'
import { canonicalAddress, canonicalNetwork } from '../gateway/source.js'
import { ADDRESS_FORMS, type Address, formatAddress, hostInUrl, parseAddress } from '../services/rpc/address.js'
import { parseCallers } from '../services/rpc/identity.js'
import { reasonOf } from '../services/rpc/service-error.js'
import { parseAddress as parsePostgresAddress } from '../services/storage/postgres/address.js'
import { isLoopback } from './loopback.js'

type Parse<Value> = (text: string) => Value

/** What is wrong with the value of a variable: `<variable> <message>`. */
export interface ConfigProblem {
  readonly variable: string
  readonly message: string
}

/** One variable. */
export interface Setting<Value> {
  readonly variable: string
  readonly about: string
  /** As it would be written in the environment; a function when it follows from other variables. */
  readonly fallback: string | ((textOf: (variable: string) => string) => string)
  /** How help shows a fallback that is a function. */
  readonly fallbackText?: string
  /** @throws Error whose message says what the value must be. */
  readonly parse: Parse<Value>
  /** Also read from the file named by VARIABLE_FILE, and masked wherever it is shown. */
  readonly isSecret?: true
}

const DAY = 86_400

function whole(min: number, max: number): Parse<number> {
  return (text) => {
    const value = /^\d{1,15}$/.test(text) ? Number(text) : Number.NaN
    if (value >= min && value <= max) return value
    throw new Error(`must be a whole number from ${min} to ${max}`)
  }
}

function oneOf<const Word extends string>(words: readonly Word[]): Parse<Word> {
  return (text) => {
    const word = words.find((one) => one === text)
    if (word !== undefined) return word
    throw new Error(`must be one of: ${words.join(', ')}`)
  }
}

function httpErrorStatus(text: string): 'semantic' | 200 {
  const word = oneOf(['semantic', '200'])(text)
  return word === '200' ? 200 : word
}

function host(text: string): string {
  if (/^[A-Za-z0-9.:_-]+$/.test(text) && URL.canParse(`http://${hostInUrl(text)}`)) return text
  throw new Error('must be a host name or an IP address')
}

function publicUrl(text: string): URL {
  const url = URL.canParse(text) ? new URL(text) : undefined
  if (url && /^https?:$/.test(url.protocol) && `${url.origin}/` === url.href) return url
  throw new Error('must be like https://auth.example.com, without path, query, fragment and user name')
}

function addressList(text: string): string[] {
  const parts = text === '' ? [] : text.split(',').map((part) => part.trim())
  const addresses = parts.map((part) => canonicalAddress(part) ?? canonicalNetwork(part))
  if (addresses.every((address) => address !== undefined)) return addresses
  throw new Error('must be IP addresses, or networks such as 10.1.0.0/16, separated by commas')
}

function serviceUrl(text: string): Address | undefined {
  return text === '' ? undefined : parseAddress(text)
}

function serviceUrls(text: string): readonly Address[] | undefined {
  if (text === '') return undefined
  const parts = text.split(',').map((part) => part.trim())
  const addresses = parts.map((part) => (parts.length === 1 ? parseAddress(part) : parsePart(part)))
  const formatted = addresses.map(formatAddress)
  const twice = formatted.find((one, index) => formatted.indexOf(one) < index)
  if (twice !== undefined) throw new Error(`names ${twice} twice`)
  return addresses
}

/** Of a list. */
function parsePart(part: string): Address {
  if (part === '') throw new Error('has a comma with no address before or after it')
  try {
    return parseAddress(part)
  } catch (error) {
    throw new Error(`has ${part} between commas, as an address: ${reasonOf(error)}`)
  }
}

function rpcListen(text: string): Address | 'socket' | 'off' {
  if (text === 'socket' || text === 'off') return text
  if (!text.includes(':')) throw new Error(`must be socket, off, ${ADDRESS_FORMS}`)
  return parseAddress(text)
}

/** Which database, as its address says. */
export type Database =
  | { readonly kind: 'sqlite'; readonly file: string }
  | { readonly kind: 'postgres'; readonly url: string }

function database(text: string): Database {
  if (/^sqlite:./.test(text)) return { kind: 'sqlite', file: path.resolve(text.slice('sqlite:'.length)) }
  if (!/^postgres(ql)?:/.test(text))
    throw new Error('must be sqlite:FILE or postgres://user:password@host:5432/database')
  parsePostgresAddress(text)
  return { kind: 'postgres', url: text }
}

function signInUrl(text: string): URL | undefined {
  if (text === '') return undefined
  const url = URL.canParse(text) ? new URL(text) : undefined
  const isSafe = url?.protocol === 'https:' || (url?.protocol === 'http:' && isLoopback(url.hostname))
  if (url && isSafe && url.hash === '' && url.username === '' && url.password === '') return url
  throw new Error(
    'must be like https://www.example.com/login, without fragment and user name; http only on this machine',
  )
}

const asWritten: Parse<string> = (text) => text

/** The host, as written in a URL, at which a listener on this IP address is reached from this machine. */
function inUrl(address: string): string {
  return address === '0.0.0.0' || address === '::' ? '127.0.0.1' : hostInUrl(address)
}

function setting<Value>(
  variable: string,
  fallback: Setting<Value>['fallback'],
  parse: Parse<Value>,
  about: string,
  more: Pick<Setting<Value>, 'fallbackText' | 'isSecret'> = {},
): Setting<Value> {
  return { variable, fallback, parse, about, ...more }
}

const addresses = {
  host: setting('HOST', '127.0.0.1', host, 'address the public gateway listens on'),
  port: setting('PORT', '8080', whole(0, 65_535), 'port of the public gateway; 0 picks a free one'),
  publicUrl: setting(
    'PUBLIC_URL',
    (textOf) => `http://${inUrl(textOf('HOST'))}:${textOf('PORT')}`,
    publicUrl,
    'address browsers and apps use; decides cookie flags, origin checks and links, never the Host header',
    { fallbackText: 'http://HOST:PORT' },
  ),
  trustedProxies: setting(
    'TRUSTED_PROXIES',
    '',
    addressList,
    'IP addresses of proxies, or networks such as 10.1.0.0/16, whose X-Forwarded-For and traceparent are trusted, separated by commas; none unless set',
  ),
  adminHost: setting(
    'ADMIN_HOST',
    '127.0.0.1',
    host,
    'address that /healthz, /readyz and /metrics listen on; keep it private',
  ),
  adminPort: setting(
    'ADMIN_PORT',
    '9100',
    whole(0, 65_535),
    'port of /healthz, /readyz and /metrics; 0 turns them off',
  ),
}

const storage = {
  dataDir: setting(
    'DATA_DIR',
    './data',
    (text) => path.resolve(text),
    'directory of the SQLite files token.db and survey.db; created 0700',
  ),
  tokenDatabase: setting(
    'TOKEN_DATABASE_URL',
    (textOf) => `sqlite:${path.join(textOf('DATA_DIR'), 'token.db')}`,
    database,
    'database of apps, users, grants and tokens: sqlite:FILE or postgres://user:password@host[,host2]:5432/database',
    { fallbackText: 'sqlite:DATA_DIR/token.db', isSecret: true },
  ),
  surveyDatabase: setting(
    'SURVEY_DATABASE_URL',
    (textOf) => `sqlite:${path.join(textOf('DATA_DIR'), 'survey.db')}`,
    database,
    'database of surveys: sqlite:FILE or postgres://…; both may share one PostgreSQL database',
    { fallbackText: 'sqlite:DATA_DIR/survey.db', isSecret: true },
  ),
}

const rpc = {
  rpcListen: setting(
    'RPC_LISTEN',
    'socket',
    rpcListen,
    'where the RPC doors (gRPC and Connect) listen: socket, which is a file in DATA_DIR, unix:/path, https://host:port (mTLS), http://127.0.0.1:port (loopback only, open to every user of the machine), or off',
    { fallbackText: 'a socket in DATA_DIR: rpc.sock, token.sock or survey.sock' },
  ),
  tokenServiceUrl: setting(
    'TOKEN_SERVICE_URL',
    '',
    serviceUrls,
    'where the gateway, the survey service and the command line find the token service: one address, or several separated by commas, or an https:// name with several IP addresses; calls go to those that serve',
    { fallbackText: 'unix:DATA_DIR/token.sock' },
  ),
  surveyServiceUrl: setting(
    'SURVEY_SERVICE_URL',
    '',
    serviceUrls,
    'where the gateway and the command line find the survey service, likewise',
    { fallbackText: 'unix:DATA_DIR/survey.sock' },
  ),
  surveyProviderUrl: setting(
    'SURVEY_PROVIDER_URL',
    '',
    serviceUrl,
    "where the survey service finds the SurveyProvider of a platform, whose surveys it then reads in place of its own database: unix:/path, https://host:port (mTLS; the server's certificate needs the role survey_provider), http://127.0.0.1:port",
    { fallbackText: 'none: surveys are in SURVEY_DATABASE_URL' },
  ),
  rpcTlsCert: setting('RPC_TLS_CERT', '', asWritten, 'PEM file: certificate of this process, for https:// addresses'),
  rpcTlsKey: setting('RPC_TLS_KEY', '', asWritten, 'PEM file: its private key'),
  rpcTlsCa: setting('RPC_TLS_CA', '', asWritten, 'PEM file: certificates that sign those of callers and services'),
  rpcCallers: setting(
    'RPC_CALLERS',
    '',
    parseCallers,
    'roles over mTLS, by name in the certificate: gateway=DNS:gw.example;survey=DNS:survey.example;verifier=URI:spiffe://example/report',
  ),
}

const lifetimes = {
  codeTtlSeconds: setting(
    'CODE_TTL_SECONDS',
    '300',
    whole(1, 600),
    'life of an unused authorization code; RFC 6749 section 4.1.2 allows at most 600',
  ),
  accessTokenTtlSeconds: setting(
    'ACCESS_TOKEN_TTL_SECONDS',
    '259200',
    whole(1, 365 * DAY),
    'life of an access token; the contract says 3 days',
  ),
  refreshTokenTtlSeconds: setting(
    'REFRESH_TOKEN_TTL_SECONDS',
    '2592000',
    whole(1, 3650 * DAY),
    'life of a refresh token, so of a grant; the contract says 30 days',
  ),
  accessTokenOverlapSeconds: setting(
    'ACCESS_TOKEN_OVERLAP_SECONDS',
    '300',
    whole(0, 365 * DAY),
    'how long earlier access tokens of a grant stay good after a refresh; 0 ends them at once',
  ),
  codeReplayGraceSeconds: setting(
    'CODE_REPLAY_GRACE_SECONDS',
    '10',
    whole(0, 600),
    'a used code sent again within this time is only refused; later, until it expires, it also revokes its grant; 0 revokes at once',
  ),
  sessionIdleSeconds: setting(
    'SESSION_IDLE_SECONDS',
    '3600',
    whole(1, 365 * DAY),
    'a signed-in browser that does nothing is signed out after this',
  ),
  sessionTtlSeconds: setting(
    'SESSION_TTL_SECONDS',
    '43200',
    whole(1, 365 * DAY),
    'a signed-in browser is signed out after this, whatever it does',
  ),
}

const caps = {
  maxLiveCodesPerUserAndApp: setting(
    'MAX_LIVE_CODES_PER_USER_AND_APP',
    '1000',
    whole(1, 1000),
    'unused codes of one user for one app; the oldest beyond it end',
  ),
  maxGrantsPerUserAndApp: setting(
    'MAX_GRANTS_PER_USER_AND_APP',
    '100',
    whole(1, 200),
    'live grants of one user for one app; the oldest beyond it are revoked',
  ),
  maxSessionsPerUser: setting(
    'MAX_SESSIONS_PER_USER',
    '100',
    whole(1, 1000),
    'browsers one user can be signed in with; the oldest beyond it are signed out',
  ),
}

const signInMethods = {
  passwordSignIn: setting(
    'PASSWORD_SIGN_IN',
    (textOf) => (textOf('SIGN_IN_URL') === '' ? 'on' : 'off'),
    oneOf(['on', 'off']),
    'whether users sign in by username and password here',
    { fallbackText: 'on, or off with SIGN_IN_URL' },
  ),
  signInUrl: setting(
    'SIGN_IN_URL',
    '',
    signInUrl,
    "address of the platform's own sign-in page; the platform says by RPC who has signed in there",
  ),
  oidcProvidersFile: setting(
    'OIDC_PROVIDERS_FILE',
    '',
    asWritten,
    'JSON file: OpenID Providers at which users sign in; read at start',
  ),
}

const answers = {
  answers: setting(
    'ANSWERS',
    'on',
    oneOf(['on', 'off']),
    'whether apps that may ask for it read answers to surveys, once a user has consented',
  ),
}

const http = {
  brandFile: setting(
    'BRAND_FILE',
    '',
    asWritten,
    'JSON file: name, logo, colour, links and texts of the platform, which the pages show; read at start',
  ),
  httpErrorStatus: setting(
    'HTTP_ERROR_STATUS',
    'semantic',
    httpErrorStatus,
    'semantic, or 200 for clients that read bodies only on 200 (no_route, method_not_allowed, 408, 413, 414, 429, 431 and 5xx keep theirs)',
  ),
}

const limits = {
  rateLimit: setting('RATE_LIMIT', 'on', oneOf(['on', 'off']), 'limits per app and per source; off for load tests'),
  httpHeadersTimeoutSeconds: setting(
    'HTTP_HEADERS_TIMEOUT_SECONDS',
    '10',
    whole(1, 300),
    'a client that has not sent its headers by then is answered 408 and cut off',
  ),
  httpRequestTimeoutSeconds: setting(
    'HTTP_REQUEST_TIMEOUT_SECONDS',
    '15',
    whole(1, 300),
    'a client that has not sent its whole request by then is answered 408 and cut off; one that reads nothing of its answer is cut off after once to twice this time',
  ),
  httpKeepAliveSeconds: setting(
    'HTTP_KEEP_ALIVE_SECONDS',
    '65',
    whole(1, 600),
    'an idle connection is kept this long, or up to two seconds longer; keep it above the idle timeout of a proxy in front',
  ),
  httpMaxConnections: setting('HTTP_MAX_CONNECTIONS', '10000', whole(1, 1_000_000), 'more are closed at once'),
  httpMaxInFlight: setting(
    'HTTP_MAX_IN_FLIGHT',
    '1000',
    whole(1, 1_000_000),
    'API requests in flight at a time, and page requests likewise; more are answered 503; lower under sustained overload',
  ),
  rateApiPerSource: setting(
    'RATE_API_PER_SOURCE',
    '1200',
    whole(1, 10_000_000),
    'requests of one IP address on /api/ in a window',
  ),
  rateApiPerApp: setting(
    'RATE_API_PER_APP',
    '6000',
    whole(1, 10_000_000),
    'requests of one app on one endpoint in a window',
  ),
  rateApiWindowSeconds: setting('RATE_API_WINDOW_SECONDS', '10', whole(1, 86_400), 'length of that window'),
  ratePagesPerSource: setting(
    'RATE_PAGES_PER_SOURCE',
    '1200',
    whole(1, 10_000_000),
    'requests of one IP address for pages in a window',
  ),
  ratePagesWindowSeconds: setting('RATE_PAGES_WINDOW_SECONDS', '60', whole(1, 86_400), 'length of that window'),
  rpcTimeoutMs: setting('RPC_TIMEOUT_MS', '4500', whole(100, 30_000), 'deadline of one call made for an HTTP request'),
  drainSeconds: setting(
    'DRAIN_SECONDS',
    '0',
    whole(0, 600),
    'after SIGTERM, how long /readyz is 503 while everything is still served, so that balancers notice; then it stops',
  ),
  shutdownTimeoutSeconds: setting(
    'SHUTDOWN_TIMEOUT_SECONDS',
    '25',
    whole(1, 600),
    'after SIGTERM and DRAIN_SECONDS, the process ends within this time, or is killed a second later; its last 2 s, at most half, are for closing the databases',
  ),
}

const signIn = {
  signInFailuresPerAccountAndSource: setting(
    'SIGN_IN_FAILURES_PER_ACCOUNT_AND_SOURCE',
    '10',
    whole(1, 10_000),
    'failed sign-ins of one IP address on one account before it must wait',
  ),
  signInFailuresPerSource: setting(
    'SIGN_IN_FAILURES_PER_SOURCE',
    '100',
    whole(1, 1_000_000),
    'failed sign-ins of one IP address on any accounts before it must wait',
  ),
  signInWindowSeconds: setting(
    'SIGN_IN_WINDOW_SECONDS',
    '900',
    whole(1, 86_400),
    'length of the window after which failed sign-ins are forgotten, and the longest wait',
  ),
  passwordHashConcurrency: setting(
    'PASSWORD_HASH_CONCURRENCY',
    '2',
    whole(1, 64),
    'passwords hashed at the same time, each in a thread of lower priority; 19 MiB of memory each',
  ),
  passwordHashQueueLimit: setting(
    'PASSWORD_HASH_QUEUE_LIMIT',
    '100',
    whole(0, 10_000),
    'sign-ins that may wait for their turn; more are refused',
  ),
}

const upkeep = {
  janitorIntervalSeconds: setting(
    'JANITOR_INTERVAL_SECONDS',
    '60',
    whole(1, DAY),
    'how often ended rows are removed and last uses are written',
  ),
  keepEndedSeconds: setting(
    'KEEP_ENDED_SECONDS',
    '604800',
    whole(3600, 3650 * DAY),
    'how long ended codes, sessions and grants with their tokens stay, for audit and for answers about replays',
  ),
  keepAuditDays: setting('KEEP_AUDIT_DAYS', '400', whole(1, 3650), 'how long audit events stay'),
  logLevel: setting(
    'LOG_LEVEL',
    'info',
    oneOf(['debug', 'info', 'warn', 'error', 'silent']),
    'least severe level written to the log (stderr)',
  ),
  logFormat: setting(
    'LOG_FORMAT',
    'auto',
    oneOf(['auto', 'json', 'pretty']),
    'auto is pretty on a terminal and JSON elsewhere',
  ),
}

/** In the order in which they are shown. */
export const settingGroups = {
  Addresses: addresses,
  Storage: storage,
  RPC: rpc,
  Lifetimes: lifetimes,
  Caps: caps,
  'Ways to sign in': signInMethods,
  Answers: answers,
  HTTP: http,
  Limits: limits,
  'Sign-in': signIn,
  'Upkeep and logs': upkeep,
} as const

export const settings = {
  ...addresses,
  ...storage,
  ...rpc,
  ...lifetimes,
  ...caps,
  ...signInMethods,
  ...answers,
  ...http,
  ...limits,
  ...signIn,
  ...upkeep,
}
