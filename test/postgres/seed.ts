// An app and a user in a token store, and the steps of the flow with values made up for them.
import { randomBytes, randomUUID } from 'node:crypto'
import type { RedemptionResult, TokenStore } from '../../services/token/store/token-store.js'
import { presented } from '../store/presented.js'
import { sessionOf } from '../store/token-store-verbs.js'

export const START = Date.UTC(2030, 0, 1)
const MINUTE = 60_000

export const cause = {
  actor: 'operator',
  actorId: '',
  actorSource: '',
  requestId: randomUUID(),
  dueAt: Number.POSITIVE_INFINITY,
} as const

export interface Seed {
  readonly appid: string
  readonly secretId: string
  readonly userId: string
  readonly username: string
}

export async function seed(store: TokenStore): Promise<Seed> {
  const unique = randomUUID()
  const app = { appid: `app_${unique}`, secretId: `secret_${unique}` }
  const user = { userId: `user_${unique}`, username: `ann ${unique}` }
  await store.createApp(
    {
      appid: app.appid,
      name: 'Survey reader',
      redirectUris: ['https://app.example/callback'],
      requiresSecretOnRefresh: false,
      requiresPkce: false,
      readsAnswers: false,
      isDisabled: false,
      createdAtMs: START,
    },
    {
      ...app,
      name: 'default',
      secretHash: randomBytes(32),
      createdAtMs: START,
      expiresAtMs: undefined,
      revokedAtMs: undefined,
      lastUsedAtMs: undefined,
      requestId: undefined,
    },
    cause,
  )
  await createUser(store, user)
  return { ...app, ...user }
}

/** Creates a user who is signed in. */
export async function createUser(store: TokenStore, user: Pick<Seed, 'userId' | 'username'>): Promise<void> {
  const passwordHash = 'none'
  await store.createUser(
    { ...user, externalId: '', nickname: 'Ann', avatar: '', passwordHash, isDisabled: false, createdAtMs: START },
    cause,
  )
  const session = { sessionHash: sessionOf(user.userId), userId: user.userId, passwordHash }
  const bounds = { expiresAtMs: START + 60 * MINUTE, previousSessionHash: undefined, browser: '', maxLive: 1 }
  await store.startSession({ ...session, ...bounds }, START, cause)
}

/** Issues a code and returns its hash. */
export async function issue(store: TokenStore, { appid, userId }: Seed): Promise<Uint8Array> {
  const codeHash = randomBytes(32)
  const redirectUri = 'https://app.example/callback'
  const about = { codeHash, appid, userId, sessionHash: sessionOf(userId), redirectUri, codeChallenge: '' }
  const consent = { scope: 'snsapi_user', permissions: '', consentVersion: '' } as const
  const code = { ...about, ...consent, expiresAtMs: START + 5 * MINUTE }
  const outcome = await store.issueCode({ ...code, maxLive: 10_000 }, START, cause)
  if (outcome !== 'issued') throw new Error(outcome)
  return codeHash
}

export interface Tokens {
  readonly grantId: string
  readonly accessTokenHash: Uint8Array
  readonly refreshTokenHash: Uint8Array
}

/** Tries to exchange a code; the tokens are good if the result is `redeemed`. */
export async function redeem(
  store: TokenStore,
  { appid, secretId }: Seed,
  codeHash: Uint8Array,
  maxGrants = 10_000,
  replayGraceMs = MINUTE,
): Promise<Tokens & { readonly result: RedemptionResult }> {
  const tokens = {
    grantId: `grant_${randomUUID()}`,
    accessTokenHash: randomBytes(32),
    refreshTokenHash: randomBytes(32),
  }
  const redemption = {
    ...tokens,
    codeHash,
    appid,
    secretId,
    redirectUri: undefined,
    codeChallenge: '',
    replayGraceMs,
    accessTokenExpiresAtMs: START + 60 * MINUTE,
    refreshTokenExpiresAtMs: START + 600 * MINUTE,
    newOpenid: `o_${randomUUID()}`,
    maxGrants,
  }
  return { ...tokens, result: await store.redeemCode(redemption, START, cause) }
}

/** Issues a code and exchanges it. */
export async function authorize(store: TokenStore, seeded: Seed): Promise<Tokens> {
  const { result, ...tokens } = await redeem(store, seeded, await issue(store, seeded))
  if (result.kind !== 'redeemed') throw new Error(result.kind)
  return tokens
}

/** Tries to refresh, with a new token each time; the token is good if the result is `minted`. */
export async function refresh(
  store: TokenStore,
  { appid, secretId }: Pick<Seed, 'appid' | 'secretId'>,
  refreshTokenHash: Uint8Array,
  { overlapMs = 5 * MINUTE } = {},
): Promise<{ readonly accessTokenHash: Uint8Array; readonly result: string }> {
  const accessTokenHash = randomBytes(32)
  const terms = { accessTokenHash: () => accessTokenHash, lifetimeMs: 60 * MINUTE, overlapMs }
  const { kind } = await store.mintAccessToken({ refreshTokenHash, appid, secretId, ...terms }, START, cause)
  return { accessTokenHash, result: kind === 'good' ? 'minted' : kind }
}

export async function isGood(store: TokenStore, accessTokenHash: Uint8Array): Promise<boolean> {
  const token = await store.findAccessToken(presented(accessTokenHash))
  return token !== undefined && !token.isRevoked && START < token.expiresAtMs
}
