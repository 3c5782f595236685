// What the writer of the power cut test commits, and checks that a store has it.
import { createHash } from 'node:crypto'

const NOW = Date.UTC(2040, 0, 1)
const HOUR = 3_600_000
const DAY = 24 * HOUR
const APPID = 'app_power'
const USER = 'user_power'
const PASSWORD_HASH = 'none'
const CAUSE = {
  actor: 'app',
  actorId: '',
  actorSource: '',
  requestId: '00000000-0000-4000-8000-000000000000',
  dueAt: Infinity,
}
const hash = (text) => createHash('sha256').update(text).digest()
const SESSION_HASH = hash('session')
/** The hash of a token of grant `i`; all tokens of a grant share its place. */
const hashAt = (i, kind) => Buffer.concat([hash(`place ${i}`).subarray(0, 8), hash(`${kind} ${i}`).subarray(8)])

export class Steps {
  #store

  constructor(store) {
    this.#store = store
  }

  async prepare() {
    const app = {
      appid: APPID,
      name: 'Power',
      redirectUris: ['https://app.example/callback'],
      requiresSecretOnRefresh: false,
      requiresPkce: false,
      readsAnswers: false,
      isDisabled: false,
      createdAtMs: NOW,
    }
    const secret = {
      secretId: 'secret_power',
      appid: APPID,
      name: 'first',
      secretHash: hash('secret'),
      createdAtMs: NOW,
    }
    await this.#store.createApp(app, secret, CAUSE)
    const person = {
      userId: USER,
      username: 'ana',
      externalId: '',
      nickname: 'Ana',
      avatar: '',
      passwordHash: PASSWORD_HASH,
      isDisabled: false,
    }
    await this.#store.createUser({ ...person, createdAtMs: NOW }, CAUSE)
    const session = {
      sessionHash: SESSION_HASH,
      userId: USER,
      passwordHash: PASSWORD_HASH,
      browser: '',
      expiresAtMs: NOW + 30 * DAY,
    }
    await this.#store.startSession({ ...session, previousSessionHash: undefined, maxLive: 1 }, NOW, CAUSE)
  }

  /** The steps of the ith grant, in order. */
  of(i) {
    return ['issued', 'redeemed', ...(i % 3 === 0 ? ['minted'] : []), ...(i % 5 === 0 ? ['revoked'] : [])]
  }

  run(i, step) {
    return this[`_${step}`](i)
  }

  _issued(i) {
    const code = {
      codeHash: hashAt(i, 'code'),
      appid: APPID,
      userId: USER,
      sessionHash: SESSION_HASH,
      redirectUri: 'https://app.example/callback',
      codeChallenge: '',
      scope: 'snsapi_user',
      permissions: '',
      consentVersion: '',
      expiresAtMs: NOW + HOUR,
      maxLive: 1000,
    }
    return this.#store.issueCode(code, NOW + i, CAUSE)
  }

  _redeemed(i) {
    const redemption = {
      codeHash: hashAt(i, 'code'),
      appid: APPID,
      secretId: 'secret_power',
      redirectUri: undefined,
      codeChallenge: '',
      replayGraceMs: DAY,
      grantId: `grant_${i}`,
      accessTokenHash: hashAt(i, 'access'),
      accessTokenExpiresAtMs: NOW + 30 * DAY,
      refreshTokenHash: hashAt(i, 'refresh'),
      refreshTokenExpiresAtMs: NOW + 30 * DAY,
      newOpenid: `o_${i}`,
      maxGrants: 1_000_000,
    }
    return this.#store.redeemCode(redemption, NOW + i, CAUSE)
  }

  _minted(i) {
    const minting = {
      refreshTokenHash: hashAt(i, 'refresh'),
      appid: APPID,
      secretId: undefined,
      accessTokenHash: () => hashAt(i, 'minted'),
      lifetimeMs: 30 * DAY,
      overlapMs: 10 * DAY,
    }
    return this.#store.mintAccessToken(minting, NOW + i, CAUSE)
  }

  _revoked(i) {
    return this.#store.revokeGrant(`grant_${i}`, NOW + i, CAUSE)
  }

  /** The acknowledgements that the store does not have. */
  async missing(acknowledged) {
    const missing = []
    for (const line of acknowledged) if (!(await this.#has(line))) missing.push(line)
    return missing
  }

  async #has(line) {
    if (line === 'ready') return (await this.#store.findUser('ana')) !== undefined
    const [i, step] = line.split(' ')
    if (step === 'issued') return true // shown by its redemption; unused ones are counted below
    const accessToken = hashAt(i, step === 'minted' ? 'minted' : 'access')
    const token = await this.#store.findAccessToken({ digest: accessToken.toString('hex'), hash: accessToken })
    return token !== undefined && (step !== 'revoked' || token.isRevoked)
  }
}

/** What is half done in a database: every change must have its audit event, and every issued code its row, a grant once used. */
export function halves(db, acknowledged) {
  const count = (sql) => db.prepare(`SELECT count(*) FROM ${sql}`).pluck().get()
  const tokens = () => db.prepare('SELECT total(length(access_tokens) / 38) FROM grants').pluck().get()
  const events = (kind) => count(`audit_events WHERE kind = '${kind}'`)
  const pairs = {
    'codes issued': [count('grants'), events('code.issued')],
    'codes used': [count('grants WHERE created_at_ms IS NOT NULL'), events('code.exchanged')],
    tokens: [tokens(), events('code.exchanged') + events('token.refreshed')],
    'revoked grants': [count('grants WHERE revoked_at_ms IS NOT NULL'), events('grant.revoked')],
  }
  const uneven = Object.entries(pairs).filter(([, [rows, recorded]]) => rows !== recorded)
  const issued = acknowledged.filter((line) => line.endsWith(' issued')).length
  return [
    ...uneven.map(([name, [rows, recorded]]) => `${name}: ${rows} rows, ${recorded} events`),
    ...(count('grants') < issued ? [`${issued} codes acknowledged, ${count('grants')} there`] : []),
  ]
}
