// oidc-provider with an adapter on SQLite, set up to do no more than survey-auth does: one scope and no `openid`, so no
// ID token is signed; opaque tokens; the refresh token is kept on refresh. Every write of its adapter is a commit.
import { createServer } from 'node:http'
import Provider from 'oidc-provider'
import { REDIRECT_URI, SCOPE } from '../person.js'
import { serveParent } from './child.js'
import { openDatabase, together } from './database.js'

const CLIENT = { id: 'app_benchmark', secret: 'a-secret-of-the-benchmark-0123456789' }
const HOUR = 3_600 // in seconds
const DAY = 24 * HOUR

const db = openDatabase(
  process.argv[2],
  `CREATE TABLE entries (
     model TEXT NOT NULL, id TEXT NOT NULL, payload TEXT NOT NULL, grant_id TEXT, user_code TEXT, uid TEXT,
     consumed_at INTEGER, expires_at INTEGER, PRIMARY KEY (model, id)) WITHOUT ROWID;
   CREATE INDEX entries_by_grant ON entries (grant_id) WHERE grant_id IS NOT NULL;
   CREATE INDEX entries_by_uid ON entries (uid) WHERE uid IS NOT NULL;
   CREATE INDEX entries_by_user_code ON entries (user_code) WHERE user_code IS NOT NULL;`,
)
const columns = 'payload, consumed_at AS consumedAt, expires_at AS expiresAt'
const statements = {
  upsert: db.prepare(
    `INSERT INTO entries (model, id, payload, grant_id, user_code, uid, expires_at) VALUES (?, ?, ?, ?, ?, ?, ?)
     ON CONFLICT (model, id) DO UPDATE SET payload = excluded.payload, grant_id = excluded.grant_id,
       user_code = excluded.user_code, uid = excluded.uid, expires_at = excluded.expires_at`,
  ),
  find: db.prepare(`SELECT ${columns} FROM entries WHERE model = ? AND id = ?`),
  findByUid: db.prepare(`SELECT ${columns} FROM entries WHERE model = ? AND uid = ?`),
  findByUserCode: db.prepare(`SELECT ${columns} FROM entries WHERE model = ? AND user_code = ?`),
  consume: db.prepare('UPDATE entries SET consumed_at = ? WHERE model = ? AND id = ?'),
  destroy: db.prepare('DELETE FROM entries WHERE model = ? AND id = ?'),
  revokeByGrantId: db.prepare('DELETE FROM entries WHERE grant_id = ?'),
}

class SqliteAdapter {
  constructor(model) {
    this.model = model
  }

  async upsert(id, payload, expiresIn) {
    const { grantId = null, userCode = null, uid = null } = payload
    const expiresAt = expiresIn ? nowSeconds() + expiresIn : null
    statements.upsert.run(this.model, id, JSON.stringify(payload), grantId, userCode, uid, expiresAt)
  }

  async find(id) {
    return toPayload(statements.find.get(this.model, id))
  }

  async findByUid(uid) {
    return toPayload(statements.findByUid.get(this.model, uid))
  }

  async findByUserCode(userCode) {
    return toPayload(statements.findByUserCode.get(this.model, userCode))
  }

  async consume(id) {
    statements.consume.run(nowSeconds(), this.model, id)
  }

  async destroy(id) {
    statements.destroy.run(this.model, id)
  }

  async revokeByGrantId(grantId) {
    statements.revokeByGrantId.run(grantId)
  }
}

function toPayload(row) {
  if (!row || (row.expiresAt !== null && row.expiresAt <= nowSeconds())) return undefined
  const payload = JSON.parse(row.payload)
  return row.consumedAt === null ? payload : { ...payload, consumed: row.consumedAt }
}

function nowSeconds() {
  return Math.floor(Date.now() / 1000)
}

const provider = new Provider('http://127.0.0.1', {
  adapter: SqliteAdapter,
  clients: [
    {
      client_id: CLIENT.id,
      client_secret: CLIENT.secret,
      redirect_uris: [REDIRECT_URI],
      grant_types: ['authorization_code', 'refresh_token'],
      response_types: ['code'],
      token_endpoint_auth_method: 'client_secret_post',
    },
  ],
  scopes: [SCOPE],
  findAccount: (_ctx, accountId) => ({ accountId, claims: () => ({ sub: accountId }) }),
  features: { devInteractions: { enabled: false }, introspection: { enabled: true } },
  issueRefreshToken: () => true,
  rotateRefreshToken: false,
  pkce: { required: () => false },
  cookies: { keys: ['of-the-benchmark'] },
  ttl: { AccessToken: 3 * DAY, AuthorizationCode: HOUR, Grant: 30 * DAY, RefreshToken: 30 * DAY },
})

const client = await provider.Client.find(CLIENT.id)

async function grantOf(index) {
  const accountId = `user_${index}`
  const grant = new provider.Grant({ accountId, clientId: CLIENT.id })
  grant.addOIDCScope(SCOPE)
  return { accountId, grantId: await grant.save() }
}

async function makeCode(index) {
  const code = new provider.AuthorizationCode({
    ...(await grantOf(index)),
    client,
    redirectUri: REDIRECT_URI,
    scope: SCOPE,
    gty: 'authorization_code',
  })
  return code.save()
}

async function makeGrant(index) {
  const about = { ...(await grantOf(index)), client, scope: SCOPE, gty: 'authorization_code' }
  return {
    accessToken: await new provider.AccessToken(about).save(),
    refreshToken: await new provider.RefreshToken({ ...about, rotations: 0 }).save(),
  }
}

function many(make) {
  return (count) =>
    together(db, async () => {
      const made = []
      for (let index = 0; index < count; index++) made.push(await make(index))
      return made
    })
}

serveParent(createServer(provider.callback()), { codes: many(makeCode), grants: many(makeGrant) }, { client: CLIENT })
