// An example of a third-party app: a plain Node server without dependencies that connects a visitor's surveys.
//
// The flow, in the order of the routes below:
//   /          a visitor who is not connected sees the button
//   /connect   remembers a fresh `state` for this visitor and sends the browser to the authorization page
//   /callback  checks the `state`, exchanges the `code` on the server, remembers the tokens for this visitor
//   /          now shows who the visitor is and which surveys they have
//   /surveys/… shows one survey
//
// Tokens stay in this process. The browser holds nothing but the id of its session here.
import { randomBytes } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import { connectPage, homePage, messagePage, missingPage, page, surveyPage } from './pages.js'
import { SurveyClient, SurveyError } from './survey-client.js'

const COOKIE = 'example_app'
const MAX_SESSIONS = 1000 // an example keeps them in memory; a real app has a store

/**
 * Starts the app on loopback.
 *
 * @param {{ baseUrl: string, appid: string, secret: string, port: number }} options
 *   baseUrl: address of the authorization service. port: 0 takes a free one, but the callback address
 *   `http://127.0.0.1:PORT/callback` must be registered for the app.
 * @returns {Promise<{ url: string, close: () => Promise<void> }>}
 */
export async function startThirdPartyApp({ baseUrl, appid, secret, port }) {
  const client = new SurveyClient({ baseUrl, appid, secret })
  const style = await readFile(new URL('./style.css', import.meta.url))
  const icon = await readFile(new URL('./icon.svg', import.meta.url))
  const sessions = new Map()
  const server = createServer((request, response) => {
    answer(request)
      .catch((error) => failurePage(error))
      .then(({ status = 200, headers = {}, body = '' }) => {
        response.writeHead(status, { 'content-type': 'text/html; charset=utf-8', ...SAFE_HEADERS, ...headers })
        response.end(body)
      })
  })

  /** @param {import('node:http').IncomingMessage} request */
  async function answer(request) {
    const target = `${address(server)}${request.url}` // whatever was sent: it need not be a path
    return request.method === 'GET' && URL.canParse(target) ? route(new URL(target), request) : notFound()
  }

  /** @param {URL} url @param {import('node:http').IncomingMessage} request */
  async function route(url, request) {
    const session = sessions.get(cookie(request))
    const isConnected = session?.tokens !== undefined && !session.hasEnded
    if (url.pathname === '/style.css') return { headers: { 'content-type': 'text/css; charset=utf-8' }, body: style }
    if (url.pathname === '/icon.svg') return { headers: { 'content-type': 'image/svg+xml' }, body: icon }
    if (url.pathname === '/connect') return connect()
    if (url.pathname === '/callback') return callback(url.searchParams, session)
    if (url.pathname === '/leave') return leave(request)
    if (url.pathname === '/') return isConnected ? home(session) : { body: page(connectPage()) }
    const surveyId = /^\/surveys\/([0-9]+)$/.exec(url.pathname)?.[1]
    if (surveyId && isConnected) return survey(session, surveyId)
    return surveyId ? redirect('/') : notFound()
  }

  /** Step 1: an unguessable state ties the answer to this browser, so that nobody can slip in another code. */
  function connect() {
    const id = randomBytes(24).toString('base64url')
    const state = randomBytes(16).toString('hex') // a-z, A-Z and 0-9 only
    if (sessions.size >= MAX_SESSIONS) sessions.delete(sessions.keys().next().value)
    sessions.set(id, { state })
    const link = client.authorizationLink({ redirectUri: `${address(server)}/callback`, state })
    return redirect(link, { 'set-cookie': `${COOKIE}=${id}; Path=/; HttpOnly; SameSite=Lax` })
  }

  /** Step 2: from here on everything happens between servers. */
  async function callback(query, session) {
    const state = query.get('state')
    if (!state || state !== session?.state) {
      if (state && state === session?.answered) return again(session)
      return { status: 400, body: page(messagePage('This answer was not meant for you', NOT_YOURS)) }
    }
    if (query.get('error') === 'access_denied') return { body: page(messagePage('No problem', DENIED)) }
    session.answered = state
    delete session.state // good for one code; a refusal keeps it, since Back leads from there to the same page
    session.exchange = client.exchange(query.get('code') ?? '')
    session.tokens = await session.exchange
    return redirect('/') // so that the code leaves the address bar
  }

  /** The same answer again: Confirm was clicked twice, and the exchange may be in flight, or the browser went Back. */
  async function again(session) {
    await session.exchange
    return redirect('/')
  }

  async function home(session) {
    const { openid } = session.tokens
    const user = await withFreshToken(session, (token) => client.user(token, openid))
    const surveys = await withFreshToken(session, (token) => client.surveys(token, openid))
    return { body: page(homePage({ user, surveys })) }
  }

  async function survey(session, id) {
    const found = await withFreshToken(session, (token) => client.survey(token, id))
    return { body: page(surveyPage(found)) }
  }

  /** Step 3 and on: when the access token has expired, renew it once and try again. */
  async function withFreshToken(session, call) {
    try {
      return await call(session.tokens.access_token)
    } catch (error) {
      if (!(error instanceof SurveyError) || error.action !== 'refresh') throw error
    }
    try {
      const renewed = await client.refresh(session.tokens.refresh_token)
      session.tokens = { ...session.tokens, access_token: renewed.access_token }
    } catch (error) {
      // other requests may be using the tokens, so they stay
      if (error instanceof SurveyError && error.action === 'reauthorize') session.hasEnded = true
      throw error
    }
    return call(session.tokens.access_token)
  }

  /** Forgets the tokens here. Only the user can end the grant itself, on the service's connected-apps page. */
  function leave(request) {
    sessions.delete(cookie(request))
    return redirect('/', { 'set-cookie': `${COOKIE}=; Path=/; HttpOnly; SameSite=Lax; Max-Age=0` })
  }

  await new Promise((resolve, reject) => {
    server.once('error', reject)
    server.listen(port, '127.0.0.1', () => resolve(undefined))
  })
  const close = () =>
    new Promise((resolve) => {
      server.close(() => resolve(undefined))
      server.closeAllConnections()
    })
  return { url: address(server), close }
}

const SAFE_HEADERS = {
  'cache-control': 'no-store',
  'content-security-policy':
    "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; frame-ancestors 'none'",
  'referrer-policy': 'no-referrer',
  'x-content-type-options': 'nosniff',
}

const NOT_YOURS =
  'It does not carry the state of the request that this browser made last. Nothing was connected; please start again.'
const DENIED = 'You did not connect your surveys, and nothing was shared. You can change your mind at any time.'
const ENDED = 'Your permission has expired or was withdrawn. Connect again to continue.'

function failurePage(error) {
  if (error instanceof SurveyError && error.type === 'invalid_refresh_token') {
    return { body: page(messagePage('Please connect again', ENDED)) }
  }
  if (error instanceof SurveyError && error.type === 'survey_not_found') {
    return { status: 404, body: page(missingPage()) }
  }
  const detail = error instanceof SurveyError ? `${error.message} (request ${error.requestId})` : 'unexpected failure'
  return { status: 502, body: page(messagePage('The survey service could not answer', detail)) }
}

function notFound() {
  return { status: 404, body: page(messagePage('Nothing here', 'There is no page at this address.')) }
}

function redirect(location, headers = {}) {
  return { status: 303, headers: { location, ...headers } }
}

function cookie(request) {
  const pairs = (request.headers.cookie ?? '').split('; ')
  return pairs.find((pair) => pair.startsWith(`${COOKIE}=`))?.slice(COOKIE.length + 1) ?? ''
}

function address(server) {
  return `http://127.0.0.1:${server.address().port}`
}
