// The contract between TokenService and its databases, in protocol steps. SQLite and PostgreSQL implement it and the
// conformance suite in test/store/ holds both to it.
//
// For every method:
// - One call is one transaction. It happens wholly or not at all, and when the promise fulfils it is committed and
//   flushed to disk. Its audit event is written in the same transaction.
// - Calls may run concurrently, from several processes. What a method says of "at most once" holds among all of them.
// - `now` is the caller's clock, in ms since 1970 UTC, as is everything named *AtMs. A store never asks a clock.
//   Something with `expiresAtMs` is good while now < expiresAtMs. Waiting times are measured by performance.now().
// - A write that could not begin while its cause was waiting (cause.ts) is refused with StoreUnavailable.
// - Credentials arrive as hashes of 32 bytes. A store never sees a credential. The hashes of a grant's tokens begin with
//   the same 8 bytes, its place.
// - Identifiers and names compare byte for byte. No text holds U+0000: services/rpc/validation.ts refuses it.
// - A database that cannot be asked (unreachable, timed out, busy, full, read-only) rejects with StoreUnavailable, and
//   nothing has happened unless the rejection is `outcomeUnknown`. Any other rejection is a defect, except for those that
//   PageOf describes.

import type { IssuingVerdict, ReplayEffect } from '../../protocol/codes.js'
import type { Permissions } from '../../protocol/consent.js'
import type { ImportedUser, ImportRules, ImportVerdict } from '../../protocol/imported-users.js'
import type { TokenTerms } from '../../protocol/refresh.js'
import type { DecisionVerdict, ReturnedSignIn, ReturnVerdict } from '../../protocol/sign-in-requests.js'
import type { OpenWays, UnlinkingVerdict } from '../../protocol/unlinking.js'
import type { Cause } from '../../storage/cause.js'
import type { CleanUps } from '../../storage/clean-up-clock.js'
import type { Connections } from '../../storage/connections.js'
import type { Flaw } from '../../storage/flaw.js'
import type { Page, PageOf } from '../../storage/page.js'
import type { Logo } from '../logo.js'

/** The key of a credential: 32 bytes, of which the last 24 or all are from its SHA-256 (services/token/credentials.ts). */
export type Hash = Uint8Array

/** An access token to look up. */
export interface PresentedToken {
  /** Of its text, and unique to it: the key of rows that a store has kept. */
  readonly digest: string
  /** The key in the database, computed on access; undefined for text that cannot be an access token. */
  readonly hash: Hash | undefined
}

/** A last use is written when the recorded one is older than this: last uses are accurate to the minute. */
export const LAST_USE_RESOLUTION_MS = 60_000

/** What is issued this far after now is from a clock that is ahead; last uses, by which refreshes are dated, are accurate to the minute. */
export const CLOCK_SKEW_MS = 2 * LAST_USE_RESOLUTION_MS

/** Last uses written in one transaction: few enough that nobody waits noticeably for it. There may be 100,000 in all. */
export const USES_AT_A_TIME = 500

export interface AppRow {
  readonly appid: string
  readonly name: string
  readonly redirectUris: readonly string[]
  readonly requiresSecretOnRefresh: boolean
  readonly requiresPkce: boolean
  /** Whether it asks users to let it read answers. While it does not, no grant of it permits that. */
  readonly readsAnswers: boolean
  readonly isDisabled: boolean
  readonly createdAtMs: number
}

export interface NewApp extends AppRow {
  readonly face?: FaceChange
}

export type AppChange = Partial<
  Pick<AppRow, 'name' | 'redirectUris' | 'requiresSecretOnRefresh' | 'requiresPkce' | 'readsAnswers'>
>

/** How an app presents itself: read for pages and operators, never for an API request. Each is empty for none. */
export interface AppFace {
  readonly homePage: string
  readonly description: string
  readonly contact: string
  readonly privacyLink: string
  readonly logoHash: string
}

export interface StoredLogo extends Logo {
  /** SHA-256 in base64url. */
  readonly logoHash: string
}

export type FaceChange = Partial<Omit<AppFace, 'logoHash'>> & { readonly logo?: StoredLogo }

export const NO_FACE: AppFace = { homePage: '', description: '', contact: '', privacyLink: '', logoHash: '' }
export const NO_LOGO: StoredLogo = { logoHash: '', contentType: '', body: new Uint8Array() }

/** The columns that differ, as the note of the event lists them. */
export function changedOfFace(before: AppFace, after: AppFace): string[] {
  const columns = {
    home_page: 'homePage',
    description: 'description',
    contact: 'contact',
    privacy_link: 'privacyLink',
    logo: 'logoHash',
  } as const
  return Object.entries(columns).flatMap(([name, column]) => (before[column] === after[column] ? [] : [name]))
}

/** Behind every password hash that begins so: they are of ASCII without `~`. */
export const behindAll = (beginning: string) => `${beginning}~`

/** The columns that differ, as the note of the event lists them. */
export function changedColumns(before: AppRow, after: AppRow): string[] {
  const columns = {
    name: before.name !== after.name,
    redirect_uris: JSON.stringify(before.redirectUris) !== JSON.stringify(after.redirectUris),
    requires_secret_on_refresh: before.requiresSecretOnRefresh !== after.requiresSecretOnRefresh,
    requires_pkce: before.requiresPkce !== after.requiresPkce,
    reads_answers: before.readsAnswers !== after.readsAnswers,
  }
  return Object.entries(columns).flatMap(([column, isChanged]) => (isChanged ? [column] : []))
}

export function removedRedirectUris(before: AppRow, after: AppRow): string[] {
  return before.redirectUris.filter((redirectUri) => !after.redirectUris.includes(redirectUri))
}

export interface AppSecretRow {
  readonly secretId: string
  readonly appid: string
  readonly name: string
  readonly secretHash: Hash
  readonly createdAtMs: number
  /** undefined: does not expire. */
  readonly expiresAtMs: number | undefined
  readonly revokedAtMs: number | undefined
  readonly lastUsedAtMs: number | undefined
  /** Of the call that made it, as its caller named it; undefined if it did not. */
  readonly requestId: string | undefined
}

export interface UserRow {
  readonly userId: string
  /** Of a user without a name, and of a deleted one, placeholderName: every user has one, and no two have the same. */
  readonly username: string
  /** The platform's own id of the user; empty for none. No two users have the same. */
  readonly externalId: string
  readonly nickname: string
  readonly avatar: string
  /** argon2id in PHC string format; empty for none, and then nobody signs in by password. */
  readonly passwordHash: string
  readonly isDisabled: boolean
  readonly createdAtMs: number
}

/** A name that no operator can give. */
export const placeholderName = (userId: string) => `~${userId}`

export type UserChange = Partial<Pick<UserRow, 'externalId' | 'nickname' | 'avatar'>>

/** The columns that differ, as the note of the event lists them. */
export function changedOfUser(before: UserRow, after: UserRow): string[] {
  const columns = { external_id: 'externalId', nickname: 'nickname', avatar: 'avatar' } as const
  return Object.entries(columns).flatMap(([name, column]) => (before[column] === after[column] ? [] : [name]))
}

/** The note of the event: a name that was given, and the id that the platform has. */
export function noteOnUser({ userId, username, externalId }: UserRow): string {
  const name = username === placeholderName(userId) ? '' : username
  return externalId === '' ? name : `${name} external_id ${externalId}`.trimStart()
}

/** Whom a provider knows as `subject`: one user, whatever races. Nothing is ever linked by anything else. */
export interface Identity {
  readonly provider: string
  readonly subject: string
}

export interface IdentityRow extends Identity {
  readonly userId: string
  readonly createdAtMs: number
  /** The last sign-in with it; 0 for none. */
  readonly lastUsedAtMs: number
}

export const noteOnIdentity = ({ provider, subject }: Identity) => `${provider} ${subject}`

/**
 * What is left of a deleted user, who still owns openids and events. The row is disabled and marked as deleted: it is found under
 * no name and in no list. It keeps its externalId and its identities, so that nobody comes back by signing in elsewhere; an
 * operator who gives one of them to another user takes it away.
 */
export const REMAINS = { nickname: '', avatar: '', passwordHash: '' } as const

/** A sign-in that goes on elsewhere, as it begins. */
export interface NewSignIn {
  readonly challengeHash: Hash
  /** Of what only the browser has that began. */
  readonly browserHash: Hash
  readonly source: string
  /** Where it goes on: a provider, or the platform if empty. */
  readonly provider: string
  /** The user to link the identity to; empty for a sign-in. */
  readonly linkTo: string
  /** The app that asks for access and its callback address; empty if none does. */
  readonly appid: string
  readonly redirectUri: string
  readonly returnUri: string
  readonly restartUri: string
  readonly language: string
  readonly asksToReauthenticate: boolean
  readonly asksToSelectAccount: boolean
  readonly expiresAtMs: number
}

export interface SignInRow extends NewSignIn, ReturnedSignIn {
  /** Whether the person did not want to, rather than was not let in; of a rejected one. */
  readonly isCancelled: boolean
}

/** What the browser brings back: its hash, and until when it is good. */
export interface Verifier {
  readonly verifierHash: Hash
  readonly verifierExpiresAtMs: number
}

/** Who has signed in there. An empty nickname or avatar keeps what is known. */
export interface Person {
  readonly provider: string
  /** The person's id there: for the platform, the external_id. */
  readonly subject: string
  readonly nickname: string
  readonly avatar: string
  /** 0 if nobody says. */
  readonly authenticatedAtMs: number
  /** The provider's id of its session; empty if there is none. */
  readonly sid: string
  /** Whether the person becomes a user if they are none yet. */
  readonly mayCreate: boolean
  readonly sessionSeconds: number
}

/** Where a sign-in goes on, and that it was decided only if the verdict is `decided`. */
export interface SignInDecision {
  readonly verdict: DecisionVerdict
  /** undefined when there is none. */
  readonly signIn: SignInRow | undefined
}

export interface SignInReturn {
  readonly verdict: ReturnVerdict
  /** undefined when it is unknown. */
  readonly signIn: SignInRow | undefined
  /** Of the session, if the verdict is `signed_in` or `created`; else 0. */
  readonly sessionExpiresAtMs: number
}

/** How events name whoever has signed in there. */
export const noteOnSubject = (provider: string, subject: string) =>
  provider === '' ? `external_id ${subject}` : noteOnIdentity({ provider, subject })

/** The user that somebody from elsewhere becomes. */
export function userFrom(
  person: Pick<Person, 'provider' | 'subject' | 'nickname' | 'avatar'>,
  userId: string,
  now: number,
): UserRow {
  const { provider, subject, nickname, avatar } = person
  const externalId = provider === '' ? subject : ''
  const name = { username: placeholderName(userId), externalId, passwordHash: '' }
  return { userId, ...name, nickname, avatar, isDisabled: false, createdAtMs: now }
}

/** What a sign-in elsewhere causes, it causes by the word of the platform or provider. */
export const byWordOf = (provider: string, cause: Cause): Cause => ({ ...cause, actorSource: provider || 'platform' })

/** By password, or by somebody's word. */
export type SessionWay = 'password' | 'platform' | 'provider'

/** How a session began. */
export interface SessionStart {
  readonly way: SessionWay
  /** Which provider; empty for the other ways. */
  readonly provider: string
  /** The user's id there, and the provider's id of its own session, by which it ends; empty for the other ways. */
  readonly subject: string
  readonly sid: string
}

export const BY_PASSWORD: SessionStart = { way: 'password', provider: '', subject: '', sid: '' }

export function startBy({ provider, subject, sid }: Pick<Person, 'provider' | 'subject' | 'sid'>): SessionStart {
  if (provider === '') return { way: 'platform', provider, subject: '', sid: '' }
  return { way: 'provider', provider, subject, sid }
}

/** As the events of a session say it. */
export const noteOnStart = ({ way, provider }: SessionStart) =>
  ({ password: 'by password', platform: 'by the platform', provider: `by ${provider}` })[way]

/** Of sessions that are ended for or by their user. */
export function noteOnEnd(sessions: number, { only, allBut }: Parameters<TokenStore['endSessions']>[0]): string {
  if (only) return 'one of them'
  return allBut ? `the other ${sessions} of them` : `all ${sessions} of them`
}

/** An open session, as its user sees it. */
export interface OpenSession extends Pick<SessionStart, 'way' | 'provider'> {
  readonly sessionHash: Hash
  /** Family and system, such as `Firefox, Linux`; empty if unknown. */
  readonly browser: string
  readonly startedAtMs: number
  readonly lastSeenAtMs: number
  readonly expiresAtMs: number
}

/** A session, perhaps expired, with its user, who is not disabled. */
export interface SessionRow extends Omit<OpenSession, 'sessionHash' | 'browser'> {
  readonly userId: string
  readonly username: string
  readonly nickname: string
  readonly avatar: string
}

/** What a user was shown and has confirmed. A code has it from its form, and a grant from its code, for good. */
export interface Consent {
  readonly permissions: Permissions
  /** Which words they were; empty if nobody said. */
  readonly consentVersion: string
}

export interface GrantRow extends Consent {
  readonly grantId: string
  readonly appid: string
  readonly appName: string
  readonly userId: string
  readonly username: string
  readonly externalId: string
  readonly openid: string
  readonly scope: string
  readonly createdAtMs: number
  readonly lastUsedAtMs: number
  /** 0 for never. */
  readonly answersReadAtMs: number
  /** End of the refresh token. */
  readonly expiresAtMs: number
  /** End of the newest access token, which may be later; 0 without one. */
  readonly accessExpiresAtMs: number
  readonly revokedAtMs: number | undefined
}

/** Everything that decides whether an access token is good, from one lookup. */
export interface AccessTokenRow {
  readonly grantId: string
  readonly appid: string
  readonly userId: string
  readonly openid: string
  readonly scope: string
  readonly externalId: string
  readonly nickname: string
  readonly avatar: string
  /** Its own expiry, or the end of its overlap when it was replaced. */
  readonly expiresAtMs: number
  readonly grantLastUsedAtMs: number
  readonly permissions: Permissions
  readonly appReadsAnswers: boolean
  /** Of the grant; 0 for never. */
  readonly answersReadAtMs: number
  /** Grant revoked, app disabled or user disabled: not good, whatever the expiry says. */
  readonly isRevoked: boolean
}

export interface AuditRow extends Pick<Cause, 'actor' | 'actorId' | 'actorSource' | 'requestId'> {
  readonly eventId: string
  readonly atMs: number
  readonly kind: AuditKind
  /** Empty when the event concerns none. */
  readonly appid: string
  readonly userId: string
  readonly grantId: string
  readonly note: string
}

/** The note of events about a secret; the name alone may be shared by several. */
export const noteOnSecret = ({ secretId, name }: Pick<AppSecretRow, 'secretId' | 'name'>) => `${secretId} ${name}`

/** What is audited. A new kind needs a line in docs/operators/access.md. */
export const AUDIT_KINDS = [
  'app.created',
  'app.updated',
  'app.disabled',
  'app.enabled',
  'app.deleted',
  'secret.added',
  'secret.revoked',
  'user.created',
  'user.updated',
  'user.disabled',
  'user.enabled',
  'user.password_set',
  'user.deleted',
  'identity.linked',
  'identity.unlinked',
  'sign_in.accepted',
  'sign_in.rejected',
  'sign_in.contradicted',
  'sign_in.refused',
  'session.started',
  'session.ended',
  'code.issued',
  'code.exchanged',
  'code.replayed',
  'token.refreshed',
  'grant.revoked',
] as const
export type AuditKind = (typeof AUDIT_KINDS)[number]

/** The note of a code: what its user consented to beyond the scope. */
export const noteOnConsent = ({ permissions, consentVersion }: Consent) =>
  permissions === '' ? '' : `${permissions}, as worded in ${consentVersion}`

export interface NewCode extends Consent {
  readonly codeHash: Hash
  readonly appid: string
  readonly userId: string
  /** The user's, in which they confirmed: checked again inside the transaction. */
  readonly sessionHash: Hash
  readonly redirectUri: string
  readonly scope: string
  /** Empty for none. */
  readonly codeChallenge: string
  /** At most an hour from now. */
  readonly expiresAtMs: number
  /** Live codes one user may have for one app; the oldest beyond that are ended. */
  readonly maxLive: number
}

export interface Redemption {
  readonly codeHash: Hash
  /** The app, and the secret it authenticated with: both are checked again inside the transaction. */
  readonly appid: string
  readonly secretId: string
  /** undefined: not sent, so not compared. */
  readonly redirectUri: string | undefined
  /** Of the code_verifier that was sent; empty if none was. */
  readonly codeChallenge: string
  /** How long after the exchange a replay is forgiven, in ms. */
  readonly replayGraceMs: number
  /** Used for the grant if the redemption succeeds. */
  readonly grantId: string
  readonly accessTokenHash: Hash
  readonly accessTokenExpiresAtMs: number
  readonly refreshTokenHash: Hash
  readonly refreshTokenExpiresAtMs: number
  /** Becomes the user's openid for this app if there is none yet. */
  readonly newOpenid: string
  /** Live grants one user may have for one app; the oldest beyond that are revoked. */
  readonly maxGrants: number
}

export type RedemptionResult =
  | { readonly kind: 'redeemed'; readonly openid: string }
  /** Unknown, used, expired, another app's, another redirect_uri's or code_verifier's, or its user is disabled. */
  | { readonly kind: 'refused'; readonly replay: 'none' | ReplayEffect }
  /** The app is unknown or disabled. */
  | { readonly kind: 'app_ended' }
  /** The secret is unknown, another app's, expired or revoked. */
  | { readonly kind: 'secret_ended' }

export interface Minting {
  readonly refreshTokenHash: Hash
  readonly appid: string
  /** The secret the app authenticated with, checked again inside the transaction; undefined when it sent none. */
  readonly secretId: string | undefined
  /** The hash of the grant's access token that ends at this time, at the place of the refresh token. */
  readonly accessTokenHash: (grantId: string, expiresAtMs: number) => Hash
  readonly lifetimeMs: number
  readonly overlapMs: number
}

export function termsOf({ accessTokenHash, lifetimeMs, overlapMs }: Minting, grantId: string): TokenTerms {
  return { lifetimeMs, overlapMs, hashOfTokenEndingAt: (expiresAtMs) => accessTokenHash(grantId, expiresAtMs) }
}

/**
 * `good`: the grant's newest access token ends at `expiresAtMs`. `refused`: unknown, expired, revoked, another app's, or its user
 * is disabled. `app_ended` and `secret_ended`: as for a redemption; the latter also when the app sent no secret but must.
 */
export type MintingResult =
  | { readonly kind: 'good'; readonly grantId: string; readonly expiresAtMs: number }
  | { readonly kind: 'refused' | 'app_ended' | 'secret_ended' }

/** Requests to add to the count of a key in a window. */
export interface RequestCount {
  readonly key: string
  readonly windowEndMs: number
  /** Negative to take back. */
  readonly requests: number
}

/** The highest count of a key in a window: the largest number that the answer can hold. */
export const MAX_REQUESTS = 2 ** 31 - 1

/** What a batch of the janitor removed. Access tokens that a refresh ended are not counted by every store. */
export type Removed = Readonly<Record<'codes' | 'accessTokens' | 'grants' | 'sessions' | 'auditEvents', number>>

export type AppDeletion = 'deleted' | 'not_found' | 'has_grants' | 'has_codes'

/** `already_revoked`: there was nothing left to revoke. */
export type Revocation = 'revoked' | 'already_revoked' | 'not_found'

export interface TokenStore extends CleanUps {
  // -- Apps ----------------------------------------------------------------------------------------------------------

  /**
   * Creates an app and its first secret. If there is an app of this id, this is the call that created it, repeated, and the
   * secret takes the place of the first one as with addAppSecret; the app stays as it is.
   * @returns the app; undefined when another live secret of it has the name of this one, or when it was deleted.
   */
  createApp(app: NewApp, secret: AppSecretRow, cause: Cause): Promise<AppRow | undefined>
  findApp(appid: string): Promise<AppRow | undefined>
  /** Whether an app has or had this id: a deleted app keeps it. */
  isAppid(appid: string): Promise<boolean>
  /** Ascending by appid. */
  listApps(page: PageOf): Promise<Page<AppRow>>
  /** Replaces the given columns, and ends the unused codes of removed redirect_uris; undefined when there is no such app. */
  updateApp(
    appid: string,
    change: AppChange & { readonly face?: FaceChange },
    now: number,
    cause: Cause,
  ): Promise<AppRow | undefined>
  /** Of an app that is not there, one with nothing in it. */
  findAppFace(appid: string): Promise<AppFace>
  /** undefined when it has none. */
  findAppLogo(appid: string): Promise<StoredLogo | undefined>
  /**
   * Disabling ends the app's unused codes. No event is written when nothing changes.
   * @returns undefined when there is no such app.
   */
  setAppDisabled(appid: string, isDisabled: boolean, now: number, cause: Cause): Promise<AppRow | undefined>
  /**
   * Removes an app with its face and its secrets, unless a grant of it is live, as for listGrants, or a code may still be exchanged.
   * Its row stays, disabled and marked as deleted: it is found in no list, and its openids and events still belong to an app.
   */
  deleteApp(appid: string, now: number, cause: Cause): Promise<AppDeletion>
  /**
   * `name_taken`: a live secret of the app has this name. A live secret that was made with the same requestId, which is not
   * undefined, is revoked first: the call is repeated because nobody got that secret.
   */
  addAppSecret(secret: AppSecretRow, now: number, cause: Cause): Promise<'added' | 'no_app' | 'name_taken'>
  /** From the moment this fulfils, no redemption or minting with the secret succeeds. */
  revokeAppSecret(appid: string, secretId: string, now: number, cause: Cause): Promise<Revocation>
  /** All secrets of the app, ended ones included, oldest first. */
  listAppSecrets(appid: string): Promise<readonly AppSecretRow[]>

  // -- Users and sessions --------------------------------------------------------------------------------------------

  createUser(user: UserRow, cause: Cause): Promise<'created' | 'username_taken' | 'external_id_taken'>
  /** As judgeImport says of each, in one transaction. They are of different users, and have different names and identities. */
  importUsers(
    users: readonly ImportedUser[],
    rules: ImportRules,
    now: number,
    cause: Cause,
  ): Promise<readonly ImportVerdict[]>
  findUser(username: string): Promise<UserRow | undefined>
  findUserById(userId: string): Promise<UserRow | undefined>
  /** undefined for an empty one, which nobody has. */
  findUserByExternalId(externalId: string): Promise<UserRow | undefined>
  /** The first password hash behind this text, byte by byte. */
  findPasswordHash(behind: string): Promise<string | undefined>
  /** How many users have a password hash that begins with this. */
  countPasswordHashes(beginning: string): Promise<number>
  /** Whether a user has or had this id: a deleted user keeps it. */
  isUserId(userId: string): Promise<boolean>
  /** Ascending by username. */
  listUsers(page: PageOf): Promise<Page<UserRow>>
  /**
   * Replaces the given columns; from the moment this fulfils, every lookup finds them. No event is written when nothing changes.
   * @returns undefined when there is no such user.
   */
  updateUser(
    userId: string,
    change: UserChange,
    now: number,
    cause: Cause,
  ): Promise<UserRow | 'external_id_taken' | undefined>
  /** Disabling ends the user's sessions and unused codes. undefined when there is no such user. */
  setUserDisabled(userId: string, isDisabled: boolean, now: number, cause: Cause): Promise<UserRow | undefined>
  /** Ends the user's sessions and unused codes. False when there is no such user. */
  setUserPassword(userId: string, passwordHash: string, now: number, cause: Cause): Promise<boolean>
  /**
   * The same by the user, whose session goes on. False when the user is gone, disabled, or no longer has the `passwordHash` that was
   * checked.
   */
  changePassword(
    change: {
      readonly userId: string
      readonly passwordHash: string
      readonly newPasswordHash: string
      readonly sessionHash: Hash
    },
    now: number,
    cause: Cause,
  ): Promise<boolean>
  /** Replaces a disabled user by REMAINS and revokes all their grants; the name becomes free. */
  deleteUser(userId: string, now: number, cause: Cause): Promise<'deleted' | 'not_found' | 'not_disabled'>
  /** `taken`: it is another user's, who is not deleted. Of concurrent calls for one identity one links it, and the others see that. */
  linkIdentity(
    identity: Identity,
    userId: string,
    now: number,
    cause: Cause,
  ): Promise<'linked' | 'already_linked' | 'taken' | 'not_found'>
  /** Whose it was; undefined when no user has it. Sessions stay. */
  unlinkIdentity(identity: Identity, now: number, cause: Cause): Promise<string | undefined>
  /** The same by the user whose it is, as judgeUnlinking says. */
  unlinkOwnIdentity(
    identity: Identity,
    userId: string,
    ways: OpenWays,
    now: number,
    cause: Cause,
  ): Promise<UnlinkingVerdict>
  /** Ascending by provider and subject. */
  listIdentities(userId: string): Promise<readonly IdentityRow[]>
  /**
   * Ends sessions of the user: all, all but one, or one; grants and codes stay. Unless it is one, whoever was accepted as the user
   * elsewhere and has not come back yet begins none. How many there were.
   */
  endSessions(
    which: { readonly userId: string; readonly allBut?: Hash; readonly only?: Hash },
    now: number,
    cause: Cause,
  ): Promise<number>
  /**
   * Ends the sessions that began with this session of the provider, and those of the subject of which no such session is known; all
   * of the subject when `sid` is empty. What was accepted of these and has not begun yet never begins. Grants and codes stay. How
   * many there were.
   */
  endProviderSessions(
    of: { readonly provider: string; readonly subject: string; readonly sid: string },
    now: number,
    cause: Cause,
  ): Promise<number>
  /** Newest first, also those that have expired, until they are removed. */
  listSessions(userId: string): Promise<readonly OpenSession[]>
  /**
   * Starts a session, ends `previousSessionHash` if it is given, and ends the user's oldest sessions beyond `maxLive`.
   * `refused`: the user is gone, disabled, or no longer has the `passwordHash` that was checked.
   */
  startSession(
    session: {
      readonly sessionHash: Hash
      readonly userId: string
      readonly passwordHash: string
      /** Of the same password, to be stored in place of that one; undefined to keep it. */
      readonly newPasswordHash?: string | undefined
      readonly browser: string
      readonly expiresAtMs: number
      readonly previousSessionHash: Hash | undefined
      readonly maxLive: number
    },
    now: number,
    cause: Cause,
  ): Promise<'started' | 'refused'>
  /** A session whose user is not disabled; the caller checks its expiry. */
  findSession(sessionHash: Hash): Promise<SessionRow | undefined>
  /** Records activity. */
  touchSession(sessionHash: Hash, now: number): Promise<void>
  /** Ending one that does not exist is fine. */
  endSession(sessionHash: Hash, now: number, cause: Cause): Promise<void>

  // -- Sign-ins elsewhere --------------------------------------------------------------------------------------------

  /** As judgeBeginning says; concurrent calls may go a little beyond the bounds. */
  beginSignIn(signIn: NewSignIn, now: number, cause: Cause): Promise<'begun' | 'too_many'>
  /** Also one that has expired or is over, until it is removed. */
  findSignIn(challengeHash: Hash): Promise<SignInRow | undefined>
  /** As judgeDecision says. From then on this verifier is the one that counts. */
  acceptSignIn(
    challengeHash: Hash,
    person: Person,
    verifier: Verifier,
    now: number,
    cause: Cause,
  ): Promise<SignInDecision>
  rejectSignIn(
    challengeHash: Hash,
    rejection: { readonly provider: string; readonly isCancelled: boolean },
    verifier: Verifier,
    now: number,
    cause: Cause,
  ): Promise<SignInDecision>
  /**
   * As judgeReturn says. Of concurrent calls for one verifier one uses it up, and the others find none. A person who is no user
   * yet becomes `newUserId`, one only, whatever races; one who is gets the profile that was accepted. Then the session starts as
   * with startSession. Where an identity is linked, `previousSessionHash` is the user's session, and stays.
   */
  completeSignIn(
    returned: {
      readonly verifierHash: Hash
      readonly browserHash: Hash
      readonly newUserId: string
      readonly browser: string
      readonly sessionHash: Hash
      readonly previousSessionHash: Hash | undefined
      readonly maxLive: number
    },
    now: number,
    cause: Cause,
  ): Promise<SignInReturn>
  /** Removes sign-ins that expired before that. Returns how many; when fewer than `limit`, none are left. */
  removeSignIns(bounds: { readonly expiredBeforeMs: number; readonly limit: number }): Promise<number>

  // -- Codes ---------------------------------------------------------------------------------------------------------

  /**
   * Stores an unused code. `exists_live`: a code with this hash exists, unused and unexpired; `exists_ended`: it exists and
   * was used, has expired or was ended, for example by a revocation.
   */
  issueCode(code: NewCode, now: number, cause: Cause): Promise<IssuingVerdict>
  /**
   * Consumes a code and creates its grant, access token and refresh token. Of any number of concurrent calls for one
   * code at most one is `redeemed`; every other outcome leaves the code as it was. A replay (right app, used code)
   * later than the grace after its exchange and before the code's expiry revokes the grant it produced.
   */
  redeemCode(redemption: Redemption, now: number, cause: Cause): Promise<RedemptionResult>

  // -- Tokens and grants ---------------------------------------------------------------------------------------------

  /**
   * As judgeRefresh says: hands out the newest access token of the grant again, or adds one and shortens the earlier ones. Only
   * the latter is audited. Counts as a use of the grant, which is recorded when the last one is older than
   * LAST_USE_RESOLUTION_MS.
   */
  mintAccessToken(minting: Minting, now: number, cause: Cause): Promise<MintingResult>
  /** undefined when unknown. The caller checks its expiry. */
  findAccessToken(token: PresentedToken): Promise<AccessTokenRow | undefined>
  /**
   * Newest first; on SQLite, unless filtered by user, by when their codes were issued. `liveAtMs`: only grants of which
   * a token is unrevoked and unexpired at that time; whether user or app is disabled does not matter.
   */
  listGrants(
    filter: { readonly userId?: string; readonly appid?: string; readonly liveAtMs?: number },
    page: PageOf,
  ): Promise<Page<GrantRow>>
  /**
   * Revokes a grant and ends the unused codes of its app and user. From the moment this fulfils no token of the
   * grant is good, whatever races with it.
   */
  revokeGrant(grantId: string, now: number, cause: Cause): Promise<Revocation>
  /** As revokeGrant, for one of this user's grants and all their others to the same app. */
  disconnectApp(grantId: string, userId: string, now: number, cause: Cause): Promise<Revocation>
  /**
   * Records last uses, each if it is later than the stored one. In several transactions: last uses only move forward, so
   * those that a failure leaves out are written by the next call.
   */
  recordUses(uses: {
    readonly grants: ReadonlyMap<string, number>
    /** Of these grants: for reading answers. */
    readonly answers: ReadonlyMap<string, number>
    readonly secrets: ReadonlyMap<string, number>
  }): Promise<void>

  // -- Rates ---------------------------------------------------------------------------------------------------------

  /**
   * Adds to the counts of requests, each key at most once per call, and returns the new count of each key in its window.
   * Counts are shared by all processes on the database. They are never below 0 nor above MAX_REQUESTS, need not be durable,
   * and may be dropped to save memory.
   */
  countRequests(counts: readonly RequestCount[]): Promise<readonly number[]>
  /** Removes counts of windows that ended before that. Returns how many; when fewer than `limit`, none are left. */
  removeRequestCounts(bounds: { readonly endedBeforeMs: number; readonly limit: number }): Promise<number>

  // -- Audit and upkeep ----------------------------------------------------------------------------------------------

  /** Newest first. */
  listAuditEvents(filter: { readonly appid?: string; readonly userId?: string }, page: PageOf): Promise<Page<AuditRow>>
  /**
   * Removes at most `limit` rows per table that can never matter again: codes and sessions that ended before
   * `endedBeforeMs`, grants that ended before it together with their tokens, audit events before `auditBeforeMs`.
   * Tokens of live grants that ended before it are removed now or by a later refresh, used codes now or with their grants.
   * Never touches a live grant or what belongs to it.
   */
  removeEnded(bounds: { endedBeforeMs: number; auditBeforeMs: number; limit: number }): Promise<Removed>
  /**
   * Makes what a clock that was ahead has issued good no longer than its lifetime from now: whatever was issued more than
   * CLOCK_SKEW_MS after now becomes issued now, and access tokens then minted end after `accessTokenMs` at the latest. Returns how
   * many rows that were. Costs next to nothing when no event is from so far ahead.
   */
  shortenAhead(lifetimes: { readonly accessTokenMs: number }, now: number): Promise<number>
  /** What is wrong with the database although it answers; rejects with StoreUnavailable if it does not. */
  ping(): Promise<readonly Flaw[]>
  /** Only of a database that is a server. */
  connections?(): Connections
  close(): Promise<void>
}
