// A person with a browser, and the server of an app they use, for the crash test: acts, remembers what was acknowledged, and
// later checks it. It does one thing at a time, so what it knows is exact.
//
// What it knows of a code: unused, used, ended (its revocation was acknowledged), or unknown: the answer was lost.
// What it knows of a grant: good, ended, or unknown.

/** Grants a person has before they disconnect the app; refreshes stay below the service's cap of tokens. */
const MAX_GRANTS = 10
const MAX_TOKENS = 40
/** How many earlier facts are checked again each time. */
const SAMPLE = 6
const LOST = { isLost: true, type: 'lost' }

export class Person {
  counts = {}
  #place
  #cookies = new Map()
  #codes = []
  #grants = []
  /** Codes and grants that changed since the last check. */
  #recent = new Set()
  #isSignedIn = false
  /** Whether the last write got 503. It then tries nothing after which less would be known of what was acknowledged before. */
  #isInterrupted = false

  /** `place`: send, appid, secret, redirectUri, username, password, surveyIds ascending. */
  constructor(place) {
    this.#place = place
  }

  async signIn() {
    const page = await this.#page('/connect/apps')
    const { username, password } = this.#place
    const answer = await this.#submit(formTo(page.text, '/connect/sign-in'), { username, password })
    if (answer.status !== 303 || !signsIn(answer)) throw new Error(`${username} could not sign in: ${answer.status}`)
    this.#isSignedIn = true
  }

  /** Does things at random until the load is over, an answer is lost or something is wrong that concerns everything. */
  work(load, failures) {
    return this.#until(load, failures, () => this.#once())
  }

  /** The same, one action of each kind in order, so that all kinds happen soon. */
  tour(load, failures) {
    return this.#until(load, failures, () => this.#onceRound())
  }

  async #until(load, failures, act) {
    let goesOn = true
    while (goesOn && !load.isOver) {
      try {
        await act()
      } catch (error) {
        if (!isConnectionError(error)) this.#fail(error, failures)
        goesOn = error.about !== undefined
      }
    }
  }

  /** What a violation is about is forgotten, so that it counts once. */
  #fail(error, failures) {
    failures.push(error instanceof Violation ? error.message : `${this.#place.username}: ${error.stack}`)
    this.#codes = this.#codes.filter((code) => code !== error.about)
    this.#grants = this.#grants.filter((grant) => grant !== error.about)
    this.#recent.delete(error.about)
  }

  /** Stops early at a 503; the next round starts over. */
  async #onceRound() {
    await this.#authorize()
    const code = this.#codes.find(({ state }) => state === 'unused')
    if (code === undefined) return
    await this.#exchange(code)
    const grant = this.#grants.find(({ state }) => state === 'good')
    if (grant === undefined) return
    await this.#expectGood(grant, pick(grant.tokens))
    await this.#readSurveys(grant)
    await this.#refresh(grant)
    await this.#disconnect()
  }

  async #once() {
    const unused = this.#codes.filter(({ state }) => state === 'unused')
    const good = this.#grants.filter(({ state }) => state === 'good')
    const dice = Math.random()
    if (unused.length > (this.#isInterrupted ? 1 : 0) && dice < 0.4) return this.#exchange(pick(unused))
    const mayDisconnect = good.length > 0 && !this.#isInterrupted
    if (mayDisconnect && (good.length >= MAX_GRANTS || dice < 0.44)) return this.#disconnect()
    if (good.length === 0 || dice < 0.55) return this.#authorize()
    const grant = pick(good)
    if (dice < 0.6) return this.#readSurveys(grant)
    if (dice < 0.8 && grant.tokens.length < MAX_TOKENS) return this.#refresh(grant)
    return this.#expectGood(grant, pick(grant.tokens))
  }

  // -- What it does --------------------------------------------------------------------------------------------------

  async #authorize() {
    const { appid, redirectUri } = this.#place
    const query = { appid, redirect_uri: redirectUri, response_type: 'code', scope: 'snsapi_user' }
    const page = await this.#page(`/connect/oauth2/authorize?${new URLSearchParams(query)}`)
    this.#expectSignedIn(page)
    if (page.status === 503) return this.#count('page 503')
    const answer = await this.#submit(formTo(page.text, '/connect/oauth2/authorize'), { decision: 'confirm' })
    if (answer.status === 503) return this.#count('authorize 503')
    const code = new URL(answer.headers.location ?? 'x:').searchParams.get('code')
    if (answer.status !== 303 || !code) throw this.#violation(`confirming answered ${answer.status}`)
    this.#count('authorize OK')
    this.#remember(this.#codes, { text: code, state: 'unused' })
  }

  async #exchange(code) {
    code.state = 'unknown'
    this.#recent.add(code)
    const answer = await this.#askToExchange(code)
    if (answer.isLost) throw answer.error
    if (answer.type === 'remote_server_error') return this.#count('exchange 503')
    if (answer.type !== '') throw this.#violation(`an unused code was refused: ${answer.type}`, code)
    this.#took(code, answer.data)
  }

  #took(code, data) {
    code.state = 'used'
    this.#count('exchange OK')
    const { access_token, refresh_token, openid } = data
    this.#remember(this.#grants, { refresh_token, openid, tokens: [access_token], state: 'good' })
  }

  async #refresh(grant) {
    const answer = await this.#askToRefresh(grant)
    if (answer.isLost) throw answer.error
    if (answer.type === 'remote_server_error') return this.#count('refresh 503')
    if (answer.type !== '') throw this.#violation(`a good refresh token was refused: ${answer.type}`, grant)
    this.#count('refresh OK')
    grant.tokens.push(answer.data.access_token)
    this.#recent.add(grant)
  }

  /** The list, and one of them in full. */
  async #readSurveys(grant) {
    const { appid, surveyIds } = this.#place
    const id = pick(surveyIds)
    const query = { appid, access_token: grant.tokens[0], openid: grant.openid }
    const expected = { '/api/surveys': surveyIds.join(), [`/api/surveys/${id}`]: String(id) }
    for (const [target, ids] of Object.entries(expected)) {
      const answer = await this.#api(target, query)
      if (answer.isLost) throw answer.error
      if (answer.type === 'remote_server_error') return this.#count('surveys 503')
      if (answer.type !== '')
        throw this.#violation(`an acknowledged access token answered ${answer.type} on ${target}`, grant)
      const found = (answer.data.list ?? [answer.data]).map((survey) => survey.id).join()
      if (found !== ids) throw this.#violation(`${target} shows ${found || 'nothing'}`)
      this.#count('surveys OK')
    }
  }

  /** Presses every button of the page of connected apps, those of grants whose answer was lost too. */
  async #disconnect() {
    const grants = this.#grants.filter(({ state }) => state !== 'ended')
    const codes = this.#codes.filter(({ state }) => state === 'unused' || state === 'unknown')
    for (let revoked = 0; ; revoked += 1) {
      const page = await this.#page('/connect/apps')
      this.#expectSignedIn(page)
      if (page.status === 503) return this.#count('page 503')
      const form = formTo(page.text, '/connect/apps/disconnect')
      if (form === undefined) return this.#disconnected(grants, revoked > 0 ? codes : [])
      for (const one of [...grants, ...codes]) one.state = 'unknown'
      const answer = await this.#submit(form, {})
      if (answer.status === 503) return this.#count('revoke 503')
      if (answer.status !== 303) throw this.#violation(`disconnecting answered ${answer.status}`)
      this.#count('revoke OK')
    }
  }

  /** The page shows no grant. Codes die with a revocation, and only with one. */
  #disconnected(grants, codes) {
    const good = grants.find(({ state }) => state === 'good')
    if (good) throw this.#violation('an acknowledged grant is not shown', good)
    for (const one of [...grants, ...codes]) {
      one.state = 'ended'
      this.#recent.add(one)
    }
  }

  // -- What it knows -------------------------------------------------------------------------------------------------

  /** Checks recent changes and a sample of the rest, or everything; returns the number of requests. */
  async check(what, failures) {
    const all = [...this.#codes, ...this.#grants]
    const sample = Array.from({ length: Math.min(SAMPLE, all.length) }, () => pick(all))
    const concerned = what === 'everything' ? all : [...new Set([...this.#recent, ...sample])]
    this.#recent.clear()
    const checks = concerned.map((one) => () => ('tokens' in one ? this.#checkGrant(one) : this.#checkCode(one)))
    if (this.#isSignedIn) checks.unshift(() => this.#checkSession())
    let asked = 0
    for (const check of checks) {
      try {
        asked += await check()
      } catch (error) {
        this.#fail(error, failures)
      }
    }
    return asked
  }

  async #checkSession() {
    this.#expectSignedIn(await this.#page('/connect/apps'))
    return 1
  }

  async #checkGrant(grant) {
    if (grant.state === 'unknown') return 0
    if (grant.state === 'good') {
      for (const token of grant.tokens) await this.#expectGood(grant, token)
      return grant.tokens.length
    }
    for (const token of grant.tokens) {
      const { type } = await this.#askForUser(grant, token)
      if (type !== 'invalid_token') throw this.#violation(`a revoked access token answered ${type || 'OK'}`, grant)
    }
    const { type } = await this.#askToRefresh(grant)
    if (type !== 'invalid_refresh_token')
      throw this.#violation(`a revoked refresh token answered ${type || 'OK'}`, grant)
    return grant.tokens.length + 1
  }

  async #checkCode(code) {
    if (code.state === 'unused') return 0 // its turn comes: then it must be taken
    const isUnknown = code.state === 'unknown'
    const first = await this.#askToExchange(code)
    if (isUnknown && first.type === '') this.#took(code, first.data)
    else if (first.type !== 'invalid_code')
      throw this.#violation(`a ${code.state} code answered ${first.type || 'OK'}`, code)
    code.state = 'used'
    if (!isUnknown) return 1
    const second = await this.#askToExchange(code)
    if (second.type !== 'invalid_code')
      throw this.#violation(`a code was exchanged twice: ${second.type || 'OK'}`, code)
    return 2
  }

  async #expectGood(grant, token) {
    const answer = await this.#askForUser(grant, token)
    if (answer.isLost) throw answer.error
    if (answer.type === 'remote_server_error') return this.#count('user 503')
    if (answer.type !== '') throw this.#violation(`an acknowledged access token answered ${answer.type}`, grant)
    if (answer.data.openid !== grant.openid) throw this.#violation('the openid changed')
    this.#count('user OK')
  }

  #expectSignedIn(page) {
    if (page.status === 200 && formTo(page.text, '/connect/sign-in') === undefined) return
    if (page.status !== 503) throw this.#violation(`an acknowledged session is gone: ${page.status}`)
  }

  #remember(list, one) {
    list.push(one)
    this.#recent.add(one)
  }

  #count(what) {
    this.counts[what] = (this.counts[what] ?? 0) + 1
    if (!/^(user|surveys) OK$/.test(what)) this.#isInterrupted = what.endsWith(' 503')
  }

  /** `about`: the code or grant that it concerns. */
  #violation(text, about) {
    return Object.assign(new Violation(`${this.#place.username}: ${text}`), { about })
  }

  // -- Requests ------------------------------------------------------------------------------------------------------

  #askToExchange({ text }) {
    const { appid, secret } = this.#place
    return this.#api('/api/oauth2/access_token', { appid, secret, code: text, grant_type: 'authorization_code' })
  }

  #askToRefresh({ refresh_token }) {
    return this.#api('/api/oauth2/refresh_token', {
      appid: this.#place.appid,
      refresh_token,
      grant_type: 'refresh_token',
    })
  }

  #askForUser({ openid }, token) {
    return this.#api('/api/oauth2/user', { appid: this.#place.appid, access_token: token, openid })
  }

  /** `type`: the error's, empty for OK; `isLost` when there was no answer. */
  async #api(target, query) {
    try {
      const { text } = await this.#place.send({ target: `${target}?${new URLSearchParams(query)}` })
      const { error, data } = JSON.parse(text)
      return { type: error.type, data }
    } catch (error) {
      if (!isConnectionError(error)) throw error
      this.#count('lost')
      return { ...LOST, error }
    }
  }

  async #page(target) {
    const answer = await this.#place.send({ target, headers: this.#headers() })
    this.#keep(answer)
    return answer
  }

  async #submit(form, sent) {
    if (form === undefined) throw this.#violation('a form is missing')
    const answer = await this.#place.send({
      target: form.action,
      method: 'POST',
      headers: {
        ...this.#headers(),
        'content-type': 'application/x-www-form-urlencoded',
        'sec-fetch-site': 'same-origin',
      },
      body: new URLSearchParams({ ...form.fields, ...sent }).toString(),
    })
    this.#keep(answer)
    return answer
  }

  #headers() {
    const cookie = [...this.#cookies].map(([name, value]) => `${name}=${value}`).join('; ')
    return { 'accept-language': 'en', ...(cookie === '' ? {} : { cookie }) }
  }

  #keep({ headers }) {
    for (const line of headers['set-cookie'] ?? []) {
      const [pair = ''] = line.split(';')
      const equals = pair.indexOf('=')
      this.#cookies.set(pair.slice(0, equals), pair.slice(equals + 1))
    }
  }
}

class Violation extends Error {}

/** Whether the answer to the sign-in form, which is a redirect after a wrong password too, starts a session. */
export function signsIn({ headers }) {
  return (headers['set-cookie'] ?? []).some((line) => line.startsWith('sa_session='))
}

/** The first form of a page that is sent to this path, with its hidden fields; undefined if there is none. */
export function formTo(html, path) {
  const found = new RegExp(`<form [^>]*?method="post" action="(${path}(?:\\?[^"]*)?)">.*?</form>`, 's').exec(html)
  if (found === null) return undefined
  const [form, action] = found
  const hidden = form.matchAll(/<input type="hidden" name="([^"]*)" value="([^"]*)">/g)
  return {
    action: unescaped(action),
    fields: Object.fromEntries([...hidden].map(([, name, value]) => [name, unescaped(value)])),
  }
}

function unescaped(text) {
  return text
    .replaceAll('&quot;', '"')
    .replaceAll('&#39;', "'")
    .replaceAll('&lt;', '<')
    .replaceAll('&gt;', '>')
    .replaceAll('&amp;', '&')
}

function isConnectionError(error) {
  return ['ECONNRESET', 'ECONNREFUSED', 'EPIPE', 'ECONNABORTED'].includes(error?.code) || /cut off/.test(error?.message)
}

function pick(list) {
  return list[Math.floor(Math.random() * list.length)]
}
