// @node-oauth/oauth2-server on fastify with a model on SQLite or PostgreSQL. The refresh token is kept on refresh, as
// survey-auth keeps it. Each method of the model that writes is one transaction.
import { randomBytes } from 'node:crypto'
import { parse } from 'node:querystring'
import OAuth2Server from '@node-oauth/oauth2-server'
import fastify from 'fastify'
import { AVATAR, NICKNAME, REDIRECT_URI, SCOPE } from '../person.js'
import { CLIENT, DAY, HOUR, openStorage, servePeer } from './peer.js'

const storage = await openStorage('node-oauth2-server')
await storage.insertClient(CLIENT.id, CLIENT.secret, REDIRECT_URI)

async function insertTokens(token, clientId, userId) {
  const { accessToken, accessTokenExpiresAt, refreshToken, refreshTokenExpiresAt } = token
  const access = [clientId, userId, token.scope.join(' '), accessToken, accessTokenExpiresAt.getTime()]
  if (refreshToken === undefined) await storage.insertAccessToken(...access)
  else await storage.insertTokens(...access, refreshToken, refreshTokenExpiresAt.getTime())
}

const model = {
  async getClient(id, secret) {
    const row = await storage.client(id)
    if (!row || (secret !== null && secret !== row.secret)) return undefined
    return { id, redirectUris: [row.redirectUri], grants: ['authorization_code', 'refresh_token'] }
  },
  async getAuthorizationCode(authorizationCode) {
    const row = await storage.code(authorizationCode)
    if (!row) return undefined
    const { clientId, userId, redirectUri, scope, expiresAt } = row
    return {
      authorizationCode,
      redirectUri,
      scope: scope.split(' '),
      expiresAt: new Date(expiresAt),
      client: { id: clientId },
      user: { id: userId },
    }
  },
  async revokeAuthorizationCode({ authorizationCode }) {
    return (await storage.deleteCode(authorizationCode)) === 1
  },
  async saveToken(token, client, user) {
    await insertTokens(token, client.id, user.id)
    return { ...token, client, user }
  },
  async getRefreshToken(refreshToken) {
    const row = await storage.refreshToken(refreshToken)
    if (!row) return undefined
    const { clientId, userId, scope, expiresAt } = row
    return {
      refreshToken,
      refreshTokenExpiresAt: new Date(expiresAt),
      scope: scope.split(' '),
      client: { id: clientId },
      user: { id: userId },
    }
  },
  async revokeToken({ refreshToken }) {
    return (await storage.deleteRefreshToken(refreshToken)) === 1
  },
  async getAccessToken(accessToken) {
    const row = await storage.accessToken(accessToken)
    if (!row) return undefined
    const { clientId, userId, nickname, avatar, scope, expiresAt } = row
    return {
      accessToken,
      accessTokenExpiresAt: new Date(expiresAt),
      scope: scope.split(' '),
      client: { id: clientId },
      user: { id: userId, nickname, avatar },
    }
  },
}

const oauth = new OAuth2Server({
  model,
  accessTokenLifetime: 3 * DAY,
  refreshTokenLifetime: 30 * DAY,
  alwaysIssueNewRefreshToken: false,
})

const app = fastify()
app.addContentTypeParser('application/x-www-form-urlencoded', { parseAs: 'string' }, (_request, body, done) =>
  done(null, { ...parse(body) }),
)
app.post('/token', async ({ headers, method, query, body }, reply) => {
  const response = new OAuth2Server.Response()
  await oauth.token(new OAuth2Server.Request({ headers, method, query, body }), response)
  return reply.code(response.status).headers(response.headers).send(response.body)
})
app.get('/user', async ({ headers, method, query }) => {
  const request = new OAuth2Server.Request({ headers, method, query })
  const { user } = await oauth.authenticate(request, new OAuth2Server.Response())
  return { openid: user.id, nickname: user.nickname, avatar: user.avatar }
})
await app.ready()

function newToken() {
  return randomBytes(32).toString('hex')
}

async function makeUser(index) {
  const userId = `user_${index}`
  await storage.insertUser(userId, NICKNAME, AVATAR)
  return userId
}

async function makeCode(index) {
  const code = newToken()
  const expiresAt = Date.now() + HOUR * 1000
  await storage.insertCode(code, CLIENT.id, await makeUser(index), REDIRECT_URI, SCOPE, expiresAt)
  return code
}

async function makeGrant(index) {
  const token = {
    accessToken: newToken(),
    accessTokenExpiresAt: new Date(Date.now() + 3 * DAY * 1000),
    refreshToken: newToken(),
    refreshTokenExpiresAt: new Date(Date.now() + 30 * DAY * 1000),
    scope: [SCOPE],
  }
  await insertTokens(token, CLIENT.id, await makeUser(index))
  return token
}

servePeer(app.server, storage, { codes: makeCode, grants: makeGrant })
