// oidc-provider with an adapter on SQLite or PostgreSQL, set up to do no more than survey-auth does: one scope and no
// `openid`, so no ID token is signed; opaque tokens; the refresh token is kept on refresh. Every write of its adapter is a
// commit.
import { createServer } from 'node:http'
import Provider from 'oidc-provider'
import { REDIRECT_URI, SCOPE } from '../person.js'
import { CLIENT, DAY, HOUR, openStorage, servePeer } from './peer.js'

const storage = await openStorage('oidc-provider')

class Adapter {
  constructor(model) {
    this.model = model
  }

  async upsert(id, payload, expiresIn) {
    const { grantId = null, userCode = null, uid = null } = payload
    const expiresAt = expiresIn ? nowSeconds() + expiresIn : null
    await storage.upsert(this.model, id, JSON.stringify(payload), grantId, userCode, uid, expiresAt)
  }

  async find(id) {
    return toPayload(await storage.find(this.model, id))
  }

  async findByUid(uid) {
    return toPayload(await storage.findByUid(this.model, uid))
  }

  async findByUserCode(userCode) {
    return toPayload(await storage.findByUserCode(this.model, userCode))
  }

  async consume(id) {
    await storage.consume(nowSeconds(), this.model, id)
  }

  async destroy(id) {
    await storage.destroy(this.model, id)
  }

  async revokeByGrantId(grantId) {
    await storage.revokeByGrantId(grantId)
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
  adapter: Adapter,
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

servePeer(createServer(provider.callback()), storage, { codes: makeCode, grants: makeGrant })
