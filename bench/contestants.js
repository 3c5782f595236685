// The contestants, how each is started, and what a request of each line looks like.
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { freePort } from '../test/harness/free-port.js'
import { codeIssuer } from './codes.js'
import { REDIRECT_URI, SCOPE } from './person.js'
import { ask, descendants, flagsOf, residentMiB, startNode, stop, temporaryFolder, untilReady } from './processes.js'
import { root } from './root.js'
import { seedSurveyAuth } from './seed.js'
import { RESOLUTION_MS } from './servers/child.js'

const START_MS = 30_000
const SEED_MS = 60_000

/** Lines of the table, in its order. `once`: each request can be sent only once; `marker`: what every good answer contains. */
export const lines = {
  exchange: { title: 'exchange a code', once: true, marker: '"access_token":"' },
  refresh: { title: 'refresh', once: false, marker: '"access_token":"' },
  user: { title: 'verify a token, user', once: false, marker: '"openid":"' },
  detail: { title: 'survey detail', once: false, marker: '"title":"' },
  list: { title: 'survey list of 20', once: false, marker: '"title":"' },
  page: { title: 'authorization page', once: false, marker: 'name="decision"' },
}

/**
 * Variables of a measured survey-auth; the others have the product's defaults, so logs, metrics, audit and rate
 * limits are on. The limits are as high as they go: one address and one app send everything here, and must not be refused.
 */
export const surveyAuthVariables = {
  RATE_LIMIT: 'on',
  RATE_API_PER_SOURCE: '10000000',
  RATE_API_PER_APP: '10000000',
  RATE_PAGES_PER_SOURCE: '10000000',
  SIGN_IN_FAILURES_PER_SOURCE: '1000000',
}

export const contestants = {
  ceiling: { title: 'constant on node:http', start: startCeiling },
  'all-in-one': { title: 'one process', start: (options) => startSurveyAuth(['all'], options) },
  separate: {
    title: 'three processes',
    start: (options) => startSurveyAuth(['token', 'survey', 'gateway'], options),
  },
  postgres: {
    title: 'one process on PostgreSQL',
    start: (options) => onPostgres(['token', 'survey'], (urls) => startSurveyAuth(['all'], options, root, urls)),
  },
  baseline: {
    title: 'baseline, one process',
    start: (options) => startSurveyAuth(['all'], options, options.baseline),
  },
  'baseline-separate': {
    title: 'baseline, three processes',
    start: (options) => startSurveyAuth(['token', 'survey', 'gateway'], options, options.baseline),
  },
  'baseline-postgres': {
    title: 'baseline, one process on PostgreSQL',
    start: (options) =>
      onPostgres(['token', 'survey'], (urls) => startSurveyAuth(['all'], options, options.baseline, urls)),
  },
  'oidc-provider': { title: 'oidc-provider', start: (options) => startPeer('oidc-provider', options) },
  'oidc-provider-postgres': {
    title: 'oidc-provider on PostgreSQL',
    start: (options) => onPostgres(['peer'], ({ peer }) => startPeer('oidc-provider', options, peer)),
  },
  'node-oauth2-server': { title: 'node-oauth2-server', start: (options) => startPeer('node-oauth2-server', options) },
  'node-oauth2-server-postgres': {
    title: 'node-oauth2-server on PostgreSQL',
    start: (options) => onPostgres(['peer'], ({ peer }) => startPeer('node-oauth2-server', options, peer)),
  },
}

/** Another checkout. */
export function isBaseline(name) {
  return name.startsWith('baseline')
}

/** Brings a PostgreSQL of its own. */
export function isOnPostgres(name) {
  return name.endsWith('postgres')
}

/**
 * A running contestant.
 * @typedef {object} Contestant
 * @property {number} port
 * @property {{ name: string, pid: number }[]} processes
 * @property {string[]} lines those it can serve
 * @property {(line: string, count: number) => Promise<{ marker: string, requests: string[] }>} requests
 *   whole HTTP requests, at least `count` of them where each can be sent only once
 * @property {() => Promise<number>} loopDelayMs p99 since the last call; the longest among its processes
 * @property {() => void} emptyLogs
 * @property {() => Promise<void>} close
 */

/** @returns {Promise<Contestant>} */
async function startCeiling() {
  const started = startNode([serverFile('ceiling')], { role: 'server', ipc: true })
  const { port } = await ask(started.child, undefined, START_MS)
  return {
    port,
    processes: [{ name: 'constant', pid: started.pid }],
    lines: Object.keys(lines),
    requests: async () => ({ marker: '{"code":"OK"', requests: [get(port, '/')] }),
    ...ofChild(started),
  }
}

/**
 * @param {string} [url] of PostgreSQL; SQLite without
 * @returns {Promise<Contestant>}
 */
async function startPeer(name, { grants }, url = undefined) {
  const folder = temporaryFolder(name)
  const storage = url === undefined ? ['sqlite', path.join(folder, 'peer.db')] : ['postgres', url]
  const started = startNode([serverFile(name), ...storage], {
    role: 'server',
    ipc: true,
    log: path.join(folder, 'log'),
  })
  const { port, client } = await ask(started.child, undefined, START_MS)
  const seed = async (what, count) => (await ask(started.child, { seed: what, count }, SEED_MS)).seeded
  const seeded = await seed('grants', grants)
  const own = { client_id: client.id, client_secret: client.secret }
  const token = (fields) => post(port, '/token', { ...own, ...fields })
  const makers = {
    exchange: async (count) =>
      (await seed('codes', count)).map((code) =>
        token({ grant_type: 'authorization_code', code, redirect_uri: REDIRECT_URI }),
      ),
    refresh: async () =>
      seeded.map(({ refreshToken }) => token({ grant_type: 'refresh_token', refresh_token: refreshToken })),
    user: async () =>
      seeded.map(({ accessToken }) =>
        name === 'oidc-provider'
          ? post(port, '/token/introspection', { ...own, token: accessToken, token_type_hint: 'access_token' })
          : get(port, '/user', { authorization: `Bearer ${accessToken}` }),
      ),
  }
  return {
    port,
    processes: [{ name, pid: started.pid }],
    lines: Object.keys(makers),
    requests: async (line, count) => ({
      marker: line === 'user' && name === 'oidc-provider' ? '"active":true' : lines[line].marker,
      requests: await makers[line](count),
    }),
    ...ofChild(started),
  }
}

/**
 * @param {string[]} databases
 * @param {(urls: Record<string, string>) => Promise<Contestant>} start gets the addresses of the databases by name
 * @returns {Promise<Contestant>} its processes include those of the PostgreSQL, which nobody else uses
 */
async function onPostgres(databases, start) {
  const cluster = startNode([serverFile('postgres/cluster'), ...databases], { role: 'server', ipc: true })
  const contestant = await start(await ask(cluster.child, undefined, START_MS))
  return {
    ...contestant,
    get processes() {
      return [...contestant.processes, ...descendants(cluster.pid).map((pid) => ({ name: 'postgres', pid }))]
    },
    async close() {
      await contestant.close()
      await stop(cluster)
    },
  }
}

/**
 * @param {{ token: string, survey: string }} [urls] of PostgreSQL; SQLite without
 * @returns {Promise<Contestant>}
 */
async function startSurveyAuth(modes, amounts, product = root, urls = undefined) {
  const dataDir = temporaryFolder(modes.join('-'))
  const seeded = await seedSurveyAuth(product, dataDir, amounts, urls)
  const port = await freePort()
  const profiling = amounts.profile ? ['--cpu-prof', `--cpu-prof-dir=${amounts.profile}`] : []
  const parts = []
  for (const mode of modes) {
    const adminPort = await freePort()
    const started = startNode([...profiling, path.join(product, 'bin', 'survey-auth.js'), 'serve', mode], {
      role: 'server',
      flags: flagsOf(product),
      log: path.join(dataDir, `${mode}.log`),
      env: {
        ...surveyAuthVariables,
        DATA_DIR: dataDir,
        ...(urls && { TOKEN_DATABASE_URL: urls.token, SURVEY_DATABASE_URL: urls.survey }),
        PORT: String(port),
        ADMIN_PORT: String(adminPort),
        PUBLIC_URL: `http://127.0.0.1:${port}`,
      },
    })
    parts.push({ name: mode, adminUrl: `http://127.0.0.1:${adminPort}`, started })
  }
  await Promise.all(parts.map(({ adminUrl, started }) => untilReady(started, adminUrl, START_MS)))
  const codes = await codeIssuer({ product, dataDir, mode: modes[0] }, seeded)
  return {
    port,
    processes: parts.map(({ name, started }) => ({ name, pid: started.pid })),
    adminUrls: parts.map(({ adminUrl }) => adminUrl),
    lines: Object.keys(lines),
    requests: await surveyAuthRequests(port, seeded, codes),
    loopDelayMs: async () => Math.max(...(await Promise.all(parts.map(loopDelayMs)))),
    emptyLogs: () => {
      for (const { started } of parts) started.emptyLog()
    },
    async close() {
      codes.close()
      await Promise.all(parts.reverse().map(({ started }) => stop(started)))
    },
  }
}

async function surveyAuthRequests(port, seeded, codes) {
  const { appid, secret, readGrants, refreshGrants, surveys } = seeded
  const api = (at, query) => get(port, `/api${at}?${new URLSearchParams({ appid, ...query })}`)
  const owners = readGrants.filter(({ userId }) => surveys.has(userId))
  const cookies = await pageCookies(port, appid, seeded.sessions)
  const makers = {
    exchange: async (count) =>
      (await codes.issue(count)).map((code) =>
        api('/oauth2/access_token', { secret, code, grant_type: 'authorization_code' }),
      ),
    refresh: () =>
      refreshGrants.map(({ refreshToken }) =>
        api('/oauth2/refresh_token', { refresh_token: refreshToken, grant_type: 'refresh_token' }),
      ),
    user: () => readGrants.map(({ accessToken, openid }) => api('/oauth2/user', { access_token: accessToken, openid })),
    detail: () =>
      owners.map(({ accessToken, userId }, index) => {
        const ids = surveys.get(userId)
        return api(`/surveys/${ids[index % ids.length]}`, { access_token: accessToken })
      }),
    list: () =>
      owners.map(({ accessToken, openid }) =>
        api('/surveys', { access_token: accessToken, openid, page: '1', per_page: '20' }),
      ),
    page: () => cookies.map((cookie) => get(port, authorizePath(appid), { cookie })),
  }
  return async (line, count) => ({
    marker: lines[line].marker,
    requests: await makers[line](count),
  })
}

function authorizePath(appid) {
  const query = { appid, redirect_uri: REDIRECT_URI, response_type: 'code', scope: SCOPE, state: 'abc123' }
  return `/connect/oauth2/authorize?${new URLSearchParams(query)}`
}

/** Browsers that are signed in and have opened a form before. */
async function pageCookies(port, appid, sessions) {
  const answer = await fetch(`http://127.0.0.1:${port}${authorizePath(appid)}`)
  const formKey = /sa_form_key=[^;]+/.exec(answer.headers.get('set-cookie') ?? '')?.[0]
  await answer.text()
  if (answer.status !== 200 || formKey === undefined) throw new Error(`the authorization page answers ${answer.status}`)
  return sessions.map((session) => `${formKey}; sa_session=${session}`)
}

async function loopDelayMs({ adminUrl }) {
  const text = await (await fetch(`${adminUrl}/metrics`)).text()
  return Number(/^nodejs_eventloop_lag_p99_seconds (\S+)/m.exec(text)?.[1]) * 1000 - RESOLUTION_MS
}

function ofChild(started) {
  return {
    loopDelayMs: async () => (await ask(started.child, {}, 5_000)).delayMs - RESOLUTION_MS,
    emptyLogs: () => started.emptyLog(),
    close: () => stop(started),
  }
}

function serverFile(name) {
  return fileURLToPath(new URL(`servers/${name}.js`, import.meta.url))
}

function get(port, target, headers = {}) {
  return `GET ${target} HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\n${fieldLines(headers)}\r\n`
}

function post(port, target, fields) {
  const body = new URLSearchParams(fields).toString()
  const type = 'application/x-www-form-urlencoded'
  const head = fieldLines({ 'content-type': type, 'content-length': String(body.length) })
  return `POST ${target} HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\n${head}\r\n${body}`
}

function fieldLines(headers) {
  return Object.entries(headers)
    .map(([name, value]) => `${name}: ${value}\r\n`)
    .join('')
}

/** Resident memory of all processes of a contestant, in MiB. */
export function memoryMiB({ processes }) {
  return processes.reduce((sum, { pid }) => sum + residentMiB(pid), 0)
}
