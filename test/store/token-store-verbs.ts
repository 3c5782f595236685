// Rows and protocol steps for tests of token stores, with everything a test does not care about filled in.
import { createHash } from 'node:crypto'
import type { Cause } from '../../services/storage/cause.js'
import type { Page, PageOf } from '../../services/storage/page.js'
import type {
  AppRow,
  AppSecretRow,
  AuditKind,
  AuditRow,
  Consent,
  GrantRow,
  Hash,
  Minting,
  NewCode,
  Redemption,
  TokenStore,
  UserRow,
} from '../../services/token/store/token-store.js'
import { presented } from './presented.js'

/** When tests happen: 2026-01-01T00:00:00Z. */
export const NOW = 1_767_225_600_000
export const MINUTE = 60_000
export const DAY = 86_400_000

export const CODE_TTL = 5 * MINUTE
export const ACCESS_TTL = 3 * DAY
export const REFRESH_TTL = 30 * DAY
export const OVERLAP = 5 * MINUTE
export const GRACE = 10_000

const dueAt = Number.POSITIVE_INFINITY
const bySelf = { actorId: '', actorSource: '' }
export const byApp: Cause = { actor: 'app', ...bySelf, requestId: '00000000-0000-4000-8000-00000000000a', dueAt }
export const byUser: Cause = { actor: 'user', ...bySelf, requestId: '00000000-0000-4000-8000-00000000000b', dueAt }
export const byOperator: Cause = {
  actor: 'operator',
  actorId: 'DNS:console.test',
  actorSource: 'certificate',
  requestId: '00000000-0000-4000-8000-00000000000c',
  dueAt,
}

/** The hash of the credential a test calls by this name. */
export function hashOf(name: string): Hash {
  return createHash('sha256').update(name).digest()
}

/** Another hash at the place of `hash`, which all tokens of a grant share. */
export function hashAt(hash: Hash, name: string): Hash {
  return Buffer.concat([hash.subarray(0, 8), hashOf(name).subarray(8)])
}

export function appRow(appid: string, rest: Partial<AppRow> = {}): AppRow {
  return {
    appid,
    name: `App ${appid}`,
    redirectUris: [`https://${appid}.example/callback`],
    requiresSecretOnRefresh: false,
    requiresPkce: false,
    readsAnswers: false,
    isDisabled: false,
    createdAtMs: NOW,
    ...rest,
  }
}

export function secretRow(appid: string, name = 'default', rest: Partial<AppSecretRow> = {}): AppSecretRow {
  return {
    secretId: `secret_${appid}_${name}`,
    appid,
    name,
    secretHash: hashOf(`secret ${appid} ${name}`),
    createdAtMs: NOW,
    expiresAtMs: undefined,
    revokedAtMs: undefined,
    lastUsedAtMs: undefined,
    requestId: undefined,
    ...rest,
  }
}

export function userRow(username: string, rest: Partial<UserRow> = {}): UserRow {
  return {
    userId: `user_${username}`,
    username,
    externalId: '',
    nickname: `Nick ${username}`,
    avatar: `https://img.example/${username}.png`,
    passwordHash: `$argon2id$${username}`,
    isDisabled: false,
    createdAtMs: NOW,
    ...rest,
  }
}

/** Hash of the session in which the user confirms. */
export const sessionOf = (userId: string) => hashOf(`session of ${userId}`)

/** Apps `app1`, `app2` with a secret each, users `ann`, `bob`, each signed in. */
export async function seed(store: TokenStore): Promise<void> {
  for (const appid of ['app1', 'app2']) await store.createApp(appRow(appid), secretRow(appid), byOperator)
  for (const username of ['ann', 'bob']) {
    await store.createUser(userRow(username), byOperator)
    await signIn(store, userRow(username))
  }
}

/** Starts the session in which the codes of `issue` are confirmed, unless it is open. */
export async function signIn(store: TokenStore, { userId, passwordHash }: Pick<UserRow, 'userId' | 'passwordHash'>) {
  const sessionHash = sessionOf(userId)
  if (await store.findSession(sessionHash)) return
  await startSession(store, '', { sessionHash, userId, passwordHash, expiresAtMs: NOW + 1000 * DAY })
}

export function newCode(name: string, rest: Partial<NewCode> = {}): NewCode {
  const { appid = 'app1', userId = 'user_ann' } = rest
  return {
    codeHash: hashOf(name),
    appid: 'app1',
    userId,
    sessionHash: sessionOf(userId),
    redirectUri: `https://${appid}.example/callback`,
    codeChallenge: '',
    scope: 'snsapi_user',
    permissions: '',
    consentVersion: 'abc',
    expiresAtMs: NOW + CODE_TTL,
    maxLive: 100,
    ...rest,
  }
}

export function issue(store: TokenStore, name: string, rest: Partial<NewCode> = {}, now = NOW) {
  return store.issueCode(newCode(name, { expiresAtMs: now + CODE_TTL, ...rest }), now, byUser)
}

let attempts = 0

/** A redemption of the code called `name`; every call brings its own grant id and tokens, as every request does. */
export function redemption(name: string, rest: Partial<Redemption> = {}, now = NOW): Redemption {
  const attempt = ++attempts
  const appid = rest.appid ?? 'app1'
  const codeHash = rest.codeHash ?? hashOf(name)
  const refreshTokenHash = rest.refreshTokenHash ?? hashAt(codeHash, `refresh ${attempt}`)
  return {
    codeHash,
    appid,
    secretId: `secret_${appid}_default`,
    redirectUri: undefined,
    codeChallenge: '',
    replayGraceMs: GRACE,
    grantId: `grant_${attempt}`,
    accessTokenHash: hashAt(refreshTokenHash, `access ${attempt}`),
    accessTokenExpiresAtMs: now + ACCESS_TTL,
    refreshTokenHash,
    refreshTokenExpiresAtMs: now + REFRESH_TTL,
    newOpenid: `openid_${attempt}`,
    maxGrants: 100,
    ...rest,
  }
}

export async function redeem(store: TokenStore, name: string, rest: Partial<Redemption> = {}, now = NOW) {
  const request = redemption(name, rest, now)
  return { ...request, result: await store.redeemCode(request, now, byApp) }
}

/** A grant as the flow makes one: a code issued and redeemed at `now`. */
export async function grant(
  store: TokenStore,
  about: { appid?: string; username?: string } & Partial<Consent> = {},
  rest: Partial<Redemption> = {},
  now = NOW,
) {
  const { appid = 'app1', username = 'ann', ...consent } = about
  const name = `code ${++attempts}`
  const { codeHash = hashOf(name) } = rest
  await issue(store, name, { codeHash, appid, userId: `user_${username}`, ...consent }, now)
  const redeemed = await redeem(store, name, { appid, ...rest }, now)
  if (redeemed.result.kind !== 'redeemed') throw new Error(`no grant was made: ${redeemed.result.kind}`)
  return { ...redeemed, name, openid: redeemed.result.openid }
}

/** A refresh whose token no other refresh yields, so that it is always a new one; `share` for one as requests make it. */
export async function mint(
  store: TokenStore,
  refreshTokenHash: Hash,
  rest: Partial<Omit<Minting, 'accessTokenHash'>> & { readonly accessTokenHash?: Hash } = {},
  now = NOW,
): Promise<{ result: 'minted' | 'refused' | 'app_ended' | 'secret_ended'; accessTokenHash: Hash }> {
  const { accessTokenHash = hashAt(refreshTokenHash, `minted ${++attempts}`), ...changed } = rest
  const minting = { ...mintingOf(refreshTokenHash), ...changed, accessTokenHash: () => accessTokenHash }
  const { kind } = await store.mintAccessToken(minting, now, byApp)
  return { result: kind === 'good' ? 'minted' : kind, accessTokenHash }
}

/** A refresh as requests make it: the same refresh token yields the same token for the same end. */
export async function share(
  store: TokenStore,
  refreshTokenHash: Hash,
  rest: Partial<Minting> = {},
  now = NOW,
): Promise<{ accessTokenHash: Hash; expiresAtMs: number }> {
  const minting = { ...mintingOf(refreshTokenHash), ...rest }
  const result = await store.mintAccessToken(minting, now, byApp)
  if (result.kind !== 'good') throw new Error(`a refresh was ${result.kind}`)
  const { grantId, expiresAtMs } = result
  return { accessTokenHash: minting.accessTokenHash(grantId, expiresAtMs), expiresAtMs }
}

export function mintingOf(refreshTokenHash: Hash): Minting {
  const accessTokenHash = (grantId: string, expiresAtMs: number) =>
    hashAt(refreshTokenHash, JSON.stringify([grantId, expiresAtMs]))
  const terms = { lifetimeMs: ACCESS_TTL, overlapMs: OVERLAP, accessTokenHash }
  return { refreshTokenHash, appid: 'app1', secretId: undefined, ...terms }
}

/** Whether data requests with this token are good at `now`, as a service judges it. */
export async function isGood(store: TokenStore, accessTokenHash: Hash, now = NOW): Promise<boolean> {
  const token = await store.findAccessToken(presented(accessTokenHash))
  return token !== undefined && !token.isRevoked && now < token.expiresAtMs
}

export async function startSession(
  store: TokenStore,
  name: string,
  rest: Partial<Parameters<TokenStore['startSession']>[0]> = {},
  now = NOW,
) {
  const session = {
    sessionHash: hashOf(name),
    userId: 'user_ann',
    passwordHash: userRow('ann').passwordHash,
    browser: 'Firefox, Linux',
    expiresAtMs: now + 7 * DAY,
    previousSessionHash: undefined,
    maxLive: 100,
    ...rest,
  }
  return store.startSession(session, now, byUser)
}

/** The part of a cause that its events record. */
export function saidOf({ actor, actorId, actorSource, requestId }: Cause) {
  return { actor, actorId, actorSource, requestId }
}

/** Events from the oldest on. */
export async function auditTrail(
  store: TokenStore,
  filter: { appid?: string; userId?: string } = {},
): Promise<AuditRow[]> {
  const events = await allPages((page) => store.listAuditEvents(filter, page), 1000)
  return events.reverse()
}

export async function auditKinds(store: TokenStore, filter = {}): Promise<AuditKind[]> {
  return (await auditTrail(store, filter)).map((event) => event.kind)
}

export async function findGrant(store: TokenStore, grantId: string): Promise<GrantRow | undefined> {
  const grants = await allPages((page) => store.listGrants({}, page), 1000)
  return grants.find((row) => row.grantId === grantId)
}

/** Every row of a list, read `limit` at a time. */
export async function allPages<Row>(list: (page: PageOf) => Promise<Page<Row>>, limit: number): Promise<Row[]> {
  const rows: Row[] = []
  let after: string | undefined
  do {
    const page = await list({ limit, after })
    if (page.rows.length > limit) throw new Error('a page is longer than asked for')
    rows.push(...page.rows)
    after = page.next
  } while (after !== undefined)
  return rows
}
