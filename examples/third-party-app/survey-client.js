// The service's HTTP interface as an app's server uses it: five calls, one envelope.

const PER_PAGE = 100 // the most the service gives at a time

/** The service answered with something other than `OK`. */
export class SurveyError extends Error {
  constructor({ code, error, request_id: requestId }) {
    super(error.message ?? error.type ?? code)
    this.type = error.type
    this.action = error.action // what to do about it: refresh, reauthorize, retry, fix_request, contact_operator
    this.requestId = requestId
  }
}

export class SurveyClient {
  #baseUrl
  #appid
  #secret

  constructor({ baseUrl, appid, secret }) {
    this.#baseUrl = baseUrl.replace(/\/$/, '')
    this.#appid = appid
    this.#secret = secret
  }

  /** Where to send the browser of a user who wants to connect. */
  authorizationLink({ redirectUri, state }) {
    const query = new URLSearchParams({
      appid: this.#appid,
      redirect_uri: redirectUri,
      response_type: 'code',
      scope: 'snsapi_user',
      state,
    })
    return `${this.#baseUrl}/connect/oauth2/authorize?${query}#wj_redirect`
  }

  /** @returns {Promise<{ access_token: string, refresh_token: string, expires_in: number, openid: string }>} */
  exchange(code) {
    return this.#get('/api/oauth2/access_token', { secret: this.#secret, code, grant_type: 'authorization_code' })
  }

  /** @returns {Promise<{ access_token: string, expires_in: number }>} */
  refresh(refreshToken) {
    return this.#get('/api/oauth2/refresh_token', { refresh_token: refreshToken, grant_type: 'refresh_token' })
  }

  /** @returns {Promise<{ openid: string, nickname: string, avatar: string }>} */
  user(accessToken, openid) {
    return this.#get('/api/oauth2/user', { access_token: accessToken, openid })
  }

  /** @returns {Promise<{ id: number, title: string, state: number }[]>} all of them, which takes a call for every 100 */
  async surveys(accessToken, openid) {
    const all = []
    for (let page = 1; ; page += 1) {
      const query = { access_token: accessToken, openid, page, per_page: PER_PAGE }
      const { list } = await this.#get('/api/surveys', query)
      all.push(...list)
      if (list.length < PER_PAGE) return all
    }
  }

  survey(accessToken, id) {
    return this.#get(`/api/surveys/${id}`, { access_token: accessToken })
  }

  async #get(path, parameters) {
    const query = new URLSearchParams({ appid: this.#appid, ...parameters })
    const response = await fetch(`${this.#baseUrl}${path}?${query}`, { signal: AbortSignal.timeout(10_000) })
    const envelope = await response.json()
    if (envelope.code !== 'OK') throw new SurveyError(envelope)
    return envelope.data
  }
}
