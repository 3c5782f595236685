// @node-oauth/oauth2-server on fastify with a model on SQLite. The refresh token is kept on refresh, as survey-auth keeps
// it. Each method of the model that writes is one transaction.
import { randomBytes } from 'node:crypto'
import { parse } from 'node:querystring'
import OAuth2Server from '@node-oauth/oauth2-server'
import fastify from 'fastify'
import { AVATAR, NICKNAME, REDIRECT_URI, SCOPE } from '../person.js'
import { serveParent } from './child.js'
import { openDatabase, together } from './database.js'

const CLIENT = { id: 'app_benchmark', secret: 'a-secret-of-the-benchmark-0123456789' }
const HOUR = 3_600 // in seconds
const DAY = 24 * HOUR

const db = openDatabase(
  process.argv[2],
  `CREATE TABLE clients (id TEXT PRIMARY KEY, secret TEXT NOT NULL, redirect_uri TEXT NOT NULL) WITHOUT ROWID;
   CREATE TABLE users (id TEXT PRIMARY KEY, nickname TEXT NOT NULL, avatar TEXT NOT NULL) WITHOUT ROWID;
   CREATE TABLE codes (code TEXT PRIMARY KEY, client_id TEXT NOT NULL, user_id TEXT NOT NULL,
     redirect_uri TEXT NOT NULL, scope TEXT NOT NULL, expires_at INTEGER NOT NULL) WITHOUT ROWID;
   CREATE TABLE access_tokens (token TEXT PRIMARY KEY, client_id TEXT NOT NULL, user_id TEXT NOT NULL,
     scope TEXT NOT NULL, expires_at INTEGER NOT NULL) WITHOUT ROWID;
   CREATE TABLE refresh_tokens (token TEXT PRIMARY KEY, client_id TEXT NOT NULL, user_id TEXT NOT NULL,
     scope TEXT NOT NULL, expires_at INTEGER NOT NULL) WITHOUT ROWID;`,
)
db.prepare('INSERT INTO clients (id, secret, redirect_uri) VALUES (?, ?, ?)').run(
  CLIENT.id,
  CLIENT.secret,
  REDIRECT_URI,
)

const statements = {
  client: db.prepare('SELECT secret, redirect_uri AS redirectUri FROM clients WHERE id = ?'),
  insertUser: db.prepare('INSERT OR IGNORE INTO users (id, nickname, avatar) VALUES (?, ?, ?)'),
  insertCode: db.prepare(
    'INSERT INTO codes (code, client_id, user_id, redirect_uri, scope, expires_at) VALUES (?, ?, ?, ?, ?, ?)',
  ),
  code: db.prepare(
    `SELECT client_id AS clientId, user_id AS userId, redirect_uri AS redirectUri, scope, expires_at AS expiresAt
     FROM codes WHERE code = ?`,
  ),
  deleteCode: db.prepare('DELETE FROM codes WHERE code = ?'),
  insertAccessToken: db.prepare(
    'INSERT INTO access_tokens (token, client_id, user_id, scope, expires_at) VALUES (?, ?, ?, ?, ?)',
  ),
  accessToken: db.prepare(
    `SELECT t.client_id AS clientId, t.user_id AS userId, t.scope, t.expires_at AS expiresAt, u.nickname, u.avatar
     FROM access_tokens t JOIN users u ON u.id = t.user_id WHERE t.token = ?`,
  ),
  insertRefreshToken: db.prepare(
    'INSERT INTO refresh_tokens (token, client_id, user_id, scope, expires_at) VALUES (?, ?, ?, ?, ?)',
  ),
  refreshToken: db.prepare(
    `SELECT client_id AS clientId, user_id AS userId, scope, expires_at AS expiresAt
     FROM refresh_tokens WHERE token = ?`,
  ),
  deleteRefreshToken: db.prepare('DELETE FROM refresh_tokens WHERE token = ?'),
}

const insertTokens = db.transaction((token, clientId, userId) => {
  const scope = token.scope.join(' ')
  statements.insertAccessToken.run(token.accessToken, clientId, userId, scope, token.accessTokenExpiresAt.getTime())
  if (token.refreshToken === undefined) return
  statements.insertRefreshToken.run(token.refreshToken, clientId, userId, scope, token.refreshTokenExpiresAt.getTime())
})

const model = {
  async getClient(id, secret) {
    const row = statements.client.get(id)
    if (!row || (secret !== null && secret !== row.secret)) return undefined
    return { id, redirectUris: [row.redirectUri], grants: ['authorization_code', 'refresh_token'] }
  },
  async getAuthorizationCode(authorizationCode) {
    const row = statements.code.get(authorizationCode)
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
    return statements.deleteCode.run(authorizationCode).changes === 1
  },
  async saveToken(token, client, user) {
    insertTokens(token, client.id, user.id)
    return { ...token, client, user }
  },
  async getRefreshToken(refreshToken) {
    const row = statements.refreshToken.get(refreshToken)
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
    return statements.deleteRefreshToken.run(refreshToken).changes === 1
  },
  async getAccessToken(accessToken) {
    const row = statements.accessToken.get(accessToken)
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

function makeUser(index) {
  const userId = `user_${index}`
  statements.insertUser.run(userId, NICKNAME, AVATAR)
  return userId
}

function makeCode(index) {
  const code = newToken()
  statements.insertCode.run(code, CLIENT.id, makeUser(index), REDIRECT_URI, SCOPE, Date.now() + HOUR * 1000)
  return code
}

function makeGrant(index) {
  const token = {
    accessToken: newToken(),
    accessTokenExpiresAt: new Date(Date.now() + 3 * DAY * 1000),
    refreshToken: newToken(),
    refreshTokenExpiresAt: new Date(Date.now() + 30 * DAY * 1000),
    scope: [SCOPE],
  }
  insertTokens(token, CLIENT.id, makeUser(index))
  return token
}

function many(make) {
  return (count) => together(db, async () => Array.from({ length: count }, (_, index) => make(index)))
}

serveParent(app.server, { codes: many(makeCode), grants: many(makeGrant) }, { client: CLIENT })
