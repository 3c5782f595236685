// What a refresh may do and what it does to the grant's earlier access tokens, as pure functions: facts in, verdict out. The
// stores read the facts, ask, and apply the verdict in one transaction.
import { type Authentication, type AuthenticationVerdict, judgeAuthentication } from './authentication.js'

/** An access token of a grant, as it is stored. */
export interface StoredToken {
  readonly hash: Uint8Array
  readonly expiresAtMs: number
}

/** The grant of a refresh token. */
export interface RefreshedGrant {
  /** End of the refresh token. */
  readonly expiresAtMs: number
  readonly isRevoked: boolean
  readonly isUserLive: boolean
  /** Newest first. */
  readonly tokens: readonly StoredToken[]
}

export interface TokenTerms {
  readonly lifetimeMs: number
  /** Earlier tokens of the grant end this long after a new one was minted, if they do not end sooner. */
  readonly overlapMs: number
  /** The hash of the grant's access token that ends at this time: the same whenever it is asked. */
  readonly hashOfTokenEndingAt: (expiresAtMs: number) => Uint8Array
}

export type RefreshVerdict =
  | { readonly kind: 'refused' | Exclude<AuthenticationVerdict, 'good'> }
  /** The newest token is handed out again, and nothing changes. */
  | { readonly kind: 'shared'; readonly expiresAtMs: number }
  /** `tokens`: those the grant has from now on, newest first, the new one included. Others end. */
  | { readonly kind: 'minted'; readonly expiresAtMs: number; readonly tokens: readonly StoredToken[] }

/**
 * With a token minted in every window and one at the exchange, nine of a grant live at a time. One more, for clocks of several
 * processes that differ by a window or more; beyond that the oldest ends.
 */
export const MAX_LIVE_TOKENS = 10
const WINDOWS_PER_OVERLAP = 8
const MIN_SHARED_OVERLAP_MS = 8_000 // without an overlap too, refreshes within a second share a token

/** How long refreshes of a grant share a token. A token that is handed out has seven eighths of its lifetime left or more. */
export function sharingWindowMs({ lifetimeMs, overlapMs }: Pick<TokenTerms, 'lifetimeMs' | 'overlapMs'>): number {
  return Math.min(lifetimeMs, Math.max(overlapMs, MIN_SHARED_OVERLAP_MS)) / WINDOWS_PER_OVERLAP
}

/** decisions 11 to 13. `grant`: undefined when the app has none with this refresh token. */
export function judgeRefresh(
  authentication: Authentication,
  grant: RefreshedGrant | undefined,
  terms: TokenTerms,
  now: number,
): RefreshVerdict {
  // 1. The app may ask.
  const app = judgeAuthentication(authentication, now)
  if (app !== 'good') return { kind: app }
  // 2. The refresh token is good, and so is its user.
  if (!grant || grant.isRevoked || !grant.isUserLive || now >= grant.expiresAtMs) return { kind: 'refused' }
  // 3. Within a window of the newest token, it is handed out again: refreshing ends no token that somebody has just received.
  const expiresAtMs = now + terms.lifetimeMs
  const [newest] = grant.tokens
  if (newest && isShared(newest, expiresAtMs, terms)) return { kind: 'shared', expiresAtMs: newest.expiresAtMs }
  // 4. Otherwise there is a new one, and the earlier ones end with the overlap.
  const minted = { hash: terms.hashOfTokenEndingAt(expiresAtMs), expiresAtMs }
  const earlier = grant.tokens
    .map((token) => endingBy(token, now + terms.overlapMs))
    .filter((token) => isLive(token, now))
  return { kind: 'minted', expiresAtMs, tokens: [minted, ...earlier].slice(0, MAX_LIVE_TOKENS) }
}

/** Only tokens that this refresh token yields are shared, so never that of the exchange, nor one whose end was changed. */
function isShared(newest: StoredToken, expiresAtMs: number, terms: TokenTerms): boolean {
  if (Math.abs(expiresAtMs - newest.expiresAtMs) >= sharingWindowMs(terms)) return false
  return Buffer.compare(terms.hashOfTokenEndingAt(newest.expiresAtMs), newest.hash) === 0
}

function endingBy(token: StoredToken, endMs: number): StoredToken {
  return token.expiresAtMs <= endMs ? token : { hash: token.hash, expiresAtMs: endMs }
}

function isLive({ expiresAtMs }: StoredToken, now: number): boolean {
  return now < expiresAtMs
}
