// A platform whose own page signs people in for survey-auth: a plain Node server without dependencies.
//
//   GET  /sign-in?sign_in_challenge=…   asks what is wanted, then shows the form, or goes on at once for whoever is signed in here
//   POST /sign-in                       checks the password, says who it is, and sends the browser back
//   POST /cancel                        says that nobody signs in, and sends the browser back
//   POST /sign-out                      ends the session here, and all sessions there
//
// In memory are its users and their sessions. A real platform has both already, and adds the two calls.
import { randomBytes } from 'node:crypto'
import { createServer } from 'node:http'
import { rpcClient } from './rpc.js'

const COOKIE = 'platform_session'

/** By name. A real platform has hashes of passwords, a second factor and a limit on guesses. */
export const USERS = {
  ming: { externalId: '1001', nickname: '小明', password: 'ming-password' },
  lan: { externalId: '1002', nickname: 'Lan', password: 'lan-password' },
}

/** Starts on loopback. `rpc`: see rpcClient. @param {{ rpc: import('./platform.js').RpcOptions, port: number }} options */
export async function startPlatform({ rpc, port }) {
  const call = rpcClient(rpc)
  const sessions = new Map() // token → { user, since }

  const server = createServer((request, response) => {
    answer(request)
      .catch((error) => ({
        status: 502,
        body: page(`<h1>This does not work right now</h1><p>${text(error.reason)}</p>`),
      }))
      .then(({ status = 200, headers = {}, body = '' }) => {
        response
          .writeHead(status, { 'content-type': 'text/html; charset=utf-8', ...SAFE_HEADERS, ...headers })
          .end(body)
      })
  })

  async function answer(request) {
    const { pathname, searchParams } = new URL(request.url, 'http://platform')
    const token = /(?:^|; )platform_session=([\w-]+)/.exec(request.headers.cookie ?? '')?.[1]
    if (request.method === 'GET' && pathname === '/sign-in') return arrive(searchParams, sessions.get(token))
    if (request.method === 'GET') return { body: homePage(sessions.get(token)) }
    // A form of another site must not sign anybody in or out here.
    if (request.headers.origin !== `http://${request.headers.host}`)
      return { status: 403, body: page('<h1>Not from here</h1>') }
    const form = new URLSearchParams(await bodyOf(request))
    if (pathname === '/sign-in') return signIn(form)
    if (pathname === '/cancel') return reject(form.get('sign_in_challenge'), 'SIGN_IN_REJECTION_CANCELLED')
    if (pathname === '/sign-out') return signOut(token)
    return { status: 404, body: page('<h1>Nothing is here</h1>') }
  }

  /** Call 1 of 2: what is asked for. What has ended begins anew where it came from. */
  async function arrive(query, session) {
    const challenge = query.get('sign_in_challenge')
    if (!challenge) return { body: homePage(session) }
    const asked = await call('SignInService/GetSignInRequest', { signInChallenge: challenge })
    if (asked.state !== 'SIGN_IN_STATE_PENDING' && asked.state !== 'SIGN_IN_STATE_ACCEPTED')
      return redirect(asked.restartUri)
    const mustAsk = asked.reauthenticate || asked.selectAccount
    return session && !mustAsk ? accept(challenge, session) : { body: signInPage(challenge, asked) }
  }

  async function signIn(form) {
    const user = Object.hasOwn(USERS, form.get('name')) ? USERS[form.get('name')] : undefined
    const challenge = form.get('sign_in_challenge')
    if (user?.password !== form.get('password'))
      return { status: 403, body: signInPage(challenge, {}, 'That is not right.') }
    const token = randomBytes(32).toString('base64url')
    const session = { user, since: new Date() }
    sessions.set(token, session)
    const headers = { 'set-cookie': `${COOKIE}=${token}; Path=/; HttpOnly; SameSite=Lax` } // over https also: Secure
    const next = challenge ? await accept(challenge, session) : redirect('/')
    return { ...next, headers: { ...next.headers, ...headers } }
  }

  /** Call 2 of 2: who it is. */
  async function accept(challenge, { user: { externalId, nickname }, since }) {
    const person = { externalId, nickname, authenticateTime: since.toISOString() }
    try {
      return redirect((await call('SignInService/AcceptSignIn', { signInChallenge: challenge, ...person })).redirectTo)
    } catch (error) {
      if (error.reason === 'USER_DISABLED') return reject(challenge, 'SIGN_IN_REJECTION_NOT_ALLOWED')
      if (!error.restartUri) throw error // SIGN_IN_EXPIRED and SIGN_IN_DECIDED have one
      return redirect(error.restartUri)
    }
  }

  /** Nobody signs in: the app is told so, or a page there says it. */
  async function reject(challenge, reason) {
    try {
      return redirect((await call('SignInService/RejectSignIn', { signInChallenge: challenge, reason })).redirectTo)
    } catch (error) {
      if (!error.restartUri) throw error
      return redirect(error.restartUri)
    }
  }

  /** Sessions there end too; what apps may do stays, until somebody ends it at /connect/apps. */
  async function signOut(token) {
    const { user } = sessions.get(token) ?? {}
    for (const [other, session] of sessions) if (session.user === user) sessions.delete(other)
    // NOT_FOUND: this person has never signed in there.
    if (user) await call('AdminService/EndUserSessions', { externalId: user.externalId }).catch(unlessNotFound)
    return redirect('/')
  }

  await new Promise((resolve, reject) => server.once('error', reject).listen(port, '127.0.0.1', resolve))
  const close = async () => {
    server.closeAllConnections()
    await new Promise((resolve) => server.close(resolve))
  }
  return { url: `http://127.0.0.1:${server.address().port}`, close }
}

function unlessNotFound(error) {
  if (error.reason !== 'NOT_FOUND') throw error
}

const SAFE_HEADERS = { 'cache-control': 'no-store', 'referrer-policy': 'same-origin', 'x-frame-options': 'DENY' }

const redirect = (location) => ({ status: 303, headers: { location } })

async function bodyOf(request) {
  let body = ''
  for await (const chunk of request) {
    body += chunk
    if (body.length > 10_000) throw new Error('too long')
  }
  return body
}

/** Untrusted text in HTML. */
const text = (value = 'unexpected') => String(value).replace(/[&<>"']/g, (found) => `&#${found.charCodeAt(0)};`)

const page = (body) => `<!doctype html>
<html lang="en"><head><meta name="viewport" content="width=device-width"><title>Example platform</title></head>
<body style="font: 1.1rem/1.5 sans-serif; max-width: 26rem; margin: 3rem auto; padding: 0 1rem">${body}</body></html>`

const homePage = (session) =>
  page(
    session
      ? `<h1>Hello, ${text(session.user.nickname)}</h1>
<form method="post" action="/sign-out"><button>Sign out everywhere</button></form>`
      : `<h1>Example platform</h1><p>Nobody is signed in.</p>${signInForm('')}`,
  )

const signInPage = (challenge, { appName, callbackHost }, message = 'Sign in') =>
  page(`<h1>Example platform</h1><p>${message}</p>
${appName ? `<p>to connect ${text(appName)} (${text(callbackHost)})</p>` : ''}
${signInForm(challenge)}
<form method="post" action="/cancel">${hidden(challenge)}<button>Cancel</button></form>`)

const signInForm = (challenge) => `<form method="post" action="/sign-in">${hidden(challenge)}
<p><label>Name <input name="name" autocomplete="username"></label></p>
<p><label>Password <input name="password" type="password" autocomplete="current-password"></label></p>
<p><button>Sign in</button></p></form>`

const hidden = (challenge) => `<input type="hidden" name="sign_in_challenge" value="${text(challenge)}">`
