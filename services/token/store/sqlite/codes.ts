// A code is the beginning of a grant: issuing it writes the row that its exchange completes.
import {
  type IssuingVerdict,
  judgeIssuing,
  judgeRedemption,
  REPLAY_NOTES,
  type ReplayVerdict,
  replayEffect,
  type StoredCode,
} from '../../../protocol/codes.js'
import { type Open, surplusOf } from '../../../protocol/surplus.js'
import type { Cause } from '../../../storage/cause.js'
import type { Connection } from '../../../storage/sqlite/open.js'
import { ENDED_AT, IS_NOT_ENDED, MAX_CODE_TTL_MS } from '../ended-codes.js'
import { type Hash, type NewCode, noteOnConsent, type Redemption, type RedemptionResult } from '../token-store.js'
import { appFinder } from './apps.js'
import type { RecordEvent } from './audit.js'
import { inSlotsOf, packTokens, placeNumber, requireOnePlace, takeSlot } from './grant-row.js'
import { type EndGrant, IS_GRANT } from './grants.js'
import type { FindAuthentication } from './secrets.js'
import type { IsOpenSession } from './sessions.js'

/** SQL: a code that may still be used, whose row is not a grant yet; the first and last condition are for the index. */
const IS_UNUSED = `issued_at_ms > :now - ${MAX_CODE_TTL_MS} AND created_at_ms IS NULL AND ${IS_NOT_ENDED}
  AND revoked_at_ms IS NULL`
const END = `code_expires_at_ms = ${ENDED_AT}, expires_at_ms = ${ENDED_AT}, revoked_at_ms = ${ENDED_AT}`

/** Expired codes of the user and app that each new code takes out of the index grants_open: more than come in. */
const CLOSED_PER_CODE = 4
/** Twice as long as codes may live, so that a clock that is some minutes ahead closes none that are good. */
const CLOSED_AFTER_MS = 20 * 60_000

/** End unused codes, as revoking and disabling do. */
export function unusedCodeEnders(db: Connection) {
  const ender = <Whose extends object>(whose: string) => {
    const end = db.prepare<[Whose & { readonly now: number }]>(
      `UPDATE grants SET ${END} WHERE ${whose} AND ${IS_UNUSED}`,
    )
    return (of: Whose & { readonly now: number }): void => void end.run(of)
  }
  return {
    // Index grants_by_app.
    ofApp: ender<{ appid: string }>('appid = :appid'),
    // Index grants_by_app.
    ofRedirectUri: ender<{ appid: string; redirectUri: string }>('appid = :appid AND redirect_uri = :redirectUri'),
    // Index grants_open, for each app.
    ofUser: ender<{ userId: string }>('user_id = :userId AND appid IN (SELECT appid FROM apps)'),
    // Index grants_open.
    ofAppAndUser: ender<{ appid: string; userId: string }>('user_id = :userId AND appid = :appid'),
  }
}

/** Whether a code of the app may still be exchanged. */
export function unusedCodeFinder(db: Connection): (of: { readonly appid: string; readonly now: number }) => boolean {
  const find = db.prepare<[{ appid: string; now: number }], 1>(
    // Index grants_by_app.
    `SELECT 1 FROM grants WHERE appid = :appid AND ${IS_UNUSED} AND code_expires_at_ms > :now LIMIT 1`,
  )
  return (of) => find.get(of) !== undefined
}

/** Columns of the lookup below, in its order. */
type CodeRecord = [
  place: bigint,
  appid: string,
  userId: string,
  scope: string,
  redirectUri: string | null,
  codeChallenge: string,
  expiresAtMs: bigint,
  usedAtMs: bigint | null,
  grantId: string | null,
  revokedAtMs: bigint | null,
  openid: string | null,
  isUserDisabled: bigint,
]

/** A code, and the grant it will become or has become. */
export interface CodeRow {
  /** The key of its row. */
  readonly place: bigint
  readonly appid: string
  readonly userId: string
  readonly scope: string
  /** null once it is used. */
  readonly redirectUri: string | null
  readonly codeChallenge: string
  readonly expiresAtMs: number
  readonly usedAtMs: number | undefined
  readonly grantId: string | null
  /** Whether the grant it has become is revoked; of an unused code: whether it has ended. */
  readonly isRevoked: boolean
  /** The user's openid for this app; null when the app sees the user for the first time. */
  readonly openid: string | null
  readonly isUserLive: boolean
}

type FindCode = (codeHash: Hash) => CodeRow | undefined

function codeFinder(db: Connection): FindCode {
  const find = db
    .prepare<[place: bigint, place: bigint, codeHash: Hash], CodeRecord>(
      // Primary keys of all three tables.
      `SELECT g.place, g.appid, g.user_id, g.scope, g.redirect_uri, g.code_challenge, g.code_expires_at_ms, g.created_at_ms,
         g.grant_id, g.revoked_at_ms, o.openid, u.is_disabled
       FROM grants g
         JOIN users u ON u.user_id = g.user_id
         LEFT JOIN openids o ON o.appid = g.appid AND o.user_id = g.user_id
       WHERE g.${inSlotsOf('?')} AND g.code_hash = +?`,
    )
    .raw()
    .safeIntegers()

  return (codeHash) => {
    const at = placeNumber(codeHash)
    const record = find.get(at, at, codeHash)
    if (!record) return undefined
    const [
      place,
      appid,
      userId,
      scope,
      redirectUri,
      codeChallenge,
      expiresAtMs,
      usedAtMs,
      grantId,
      revokedAtMs,
      openid,
      isUserDisabled,
    ] = record
    return {
      place,
      appid,
      userId,
      scope,
      redirectUri,
      codeChallenge,
      expiresAtMs: Number(expiresAtMs),
      usedAtMs: usedAtMs === null ? undefined : Number(usedAtMs),
      grantId,
      isRevoked: revokedAtMs !== null,
      openid,
      isUserLive: isUserDisabled === 0n,
    }
  }
}

interface CodeDeps {
  readonly record: RecordEvent
  readonly findAuthentication: FindAuthentication
  readonly isOpenSession: IsOpenSession
  readonly endGrant: EndGrant
}

export function codeWrites(db: Connection, deps: CodeDeps) {
  const findCode = codeFinder(db)
  return { ...issueWrites(db, findCode, deps), ...redeemWrites(db, findCode, deps) }
}

function issueWrites(db: Connection, findCode: FindCode, { record, isOpenSession }: CodeDeps) {
  const findApp = appFinder(db)
  const ofLastIssued =
    'user_id = +:userId AND appid = +:appid AND issued_at_ms > :issuedAfter AND revoked_at_ms IS NULL'
  const findOpen = db.prepare<
    [{ appid: string; userId: string; issuedAfter: number; max: number }],
    Open & { codeHash: Hash }
  >(
    // Index grants_open. Only codes with the lifetime of the new one count, however many have ended; most users have so few
    // that no row is read.
    `SELECT code_hash AS codeHash, issued_at_ms AS beganAtMs, expires_at_ms AS expiresAtMs FROM grants
     WHERE (SELECT count(*) FROM grants WHERE ${ofLastIssued}) >= :max AND ${ofLastIssued} AND created_at_ms IS NULL`,
  )
  const end = db.prepare<[{ codeHash: Hash; place: bigint }]>(
    // Primary key.
    `UPDATE grants SET ${END} WHERE ${inSlotsOf(':place')} AND code_hash = +:codeHash`,
  )
  const closeExpired = db.prepare<[{ appid: string; userId: string; now: number }]>(
    // Index grants_open; then the primary key.
    `UPDATE grants SET revoked_at_ms = expires_at_ms WHERE place IN (
       SELECT place FROM grants
       WHERE user_id = +:userId AND appid = +:appid AND issued_at_ms <= :now - ${CLOSED_AFTER_MS} AND created_at_ms IS NULL
         AND expires_at_ms <= :now AND revoked_at_ms IS NULL
       ORDER BY issued_at_ms LIMIT ${CLOSED_PER_CODE})`,
  )
  const insert = db.prepare<
    [Omit<NewCode, 'sessionHash' | 'maxLive'> & { readonly place: bigint; readonly now: number }]
  >(
    `INSERT INTO grants
       (place, appid, user_id, scope, permissions, consent_version, issued_at_ms, code_hash, code_expires_at_ms,
        redirect_uri, code_challenge, expires_at_ms)
     VALUES (:place, :appid, :userId, :scope, :permissions, :consentVersion, :now, :codeHash, :expiresAtMs,
        :redirectUri, :codeChallenge, :expiresAtMs)
     ON CONFLICT (place) DO NOTHING`,
  )

  return {
    issueCode({ sessionHash, maxLive, ...code }: NewCode, now: number, cause: Cause): IssuingVerdict {
      const { appid, userId, expiresAtMs } = code
      if (expiresAtMs > now + MAX_CODE_TTL_MS) throw new TypeError('a code lives for an hour at most')
      const isSessionOpen = isOpenSession(sessionHash, userId)
      const existing = findCode(code.codeHash)
      const facts = { app: findApp(appid), isSessionOpen, existing: existing && storedCode(existing) }
      const verdict = judgeIssuing(facts, code.redirectUri, now)
      if (verdict !== 'issued') return verdict
      const open = findOpen.all({ appid, userId, issuedAfter: now - (expiresAtMs - now), max: maxLive })
      for (const { codeHash } of surplusOf(open, maxLive, now)) end.run({ codeHash, place: placeNumber(codeHash) })
      closeExpired.run({ appid, userId, now })
      takeSlot(placeNumber(code.codeHash), (place) => insert.run({ ...code, place, now }).changes === 1)
      record({ kind: 'code.issued', now, cause, appid, userId, note: noteOnConsent(code) })
      return 'issued'
    },
  }
}

/** Parameters of the statement that turns an unused code into a grant, in order. */
type Completion = [
  grantId: string,
  openid: string,
  refreshTokenHash: Hash,
  createdAtMs: number,
  lastUsedAtMs: number,
  expiresAtMs: number,
  accessTokens: Buffer,
  place: bigint,
]

function redeemWrites(db: Connection, findCode: FindCode, { record, findAuthentication, endGrant }: CodeDeps) {
  const insertOpenid = db.prepare<[string, string, string]>(
    'INSERT INTO openids (appid, user_id, openid) VALUES (?, ?, ?)',
  )
  const findOpen = db.prepare<[{ appid: string; userId: string; max: number }], Open & { grantId: string }>(
    // Index grants_open. Most users have so few grants to an app that no row is read.
    `SELECT grant_id AS grantId, created_at_ms AS beganAtMs, expires_at_ms AS expiresAtMs FROM grants
     WHERE (SELECT count(*) FROM grants WHERE user_id = +:userId AND appid = +:appid AND revoked_at_ms IS NULL) >= :max
       AND user_id = +:userId AND appid = +:appid AND ${IS_GRANT} AND revoked_at_ms IS NULL`,
  )
  const complete = db.prepare<Completion>(
    // Primary key.
    `UPDATE grants
     SET redirect_uri = NULL, code_challenge = '', grant_id = ?, openid = ?, refresh_token_hash = ?, created_at_ms = ?,
       last_used_at_ms = ?, expires_at_ms = ?, access_tokens = ?
     WHERE place = ?`,
  )

  /** Turns the code into a grant with its first tokens; returns the openid. */
  function completeGrant(redemption: Redemption, code: CodeRow, now: number, cause: Cause): string {
    const { appid, userId } = code
    const { codeHash, grantId, refreshTokenHash, refreshTokenExpiresAtMs, maxGrants: max } = redemption
    const openid = code.openid ?? redemption.newOpenid
    if (code.openid === null) insertOpenid.run(appid, userId, openid)
    for (const surplus of surplusOf(findOpen.all({ appid, userId, max }), max, now)) {
      endGrant(surplus.grantId, now, cause, 'too many grants of one user to one app')
    }
    requireOnePlace(refreshTokenHash, codeHash)
    requireOnePlace(redemption.accessTokenHash, codeHash)
    const { accessTokenHash: hash, accessTokenExpiresAtMs: expiresAtMs } = redemption
    const accessTokens = packTokens([{ hash, expiresAtMs }])
    complete.run(grantId, openid, refreshTokenHash, now, now, refreshTokenExpiresAtMs, accessTokens, code.place)
    return openid
  }

  /** The audit event of a replay, and the end of the grant if it has that effect. */
  function replay(code: CodeRow, verdict: ReplayVerdict, now: number, cause: Cause): RedemptionResult {
    const { appid, userId, grantId } = code
    const effect = replayEffect(verdict, code.isRevoked)
    const about = { appid, userId, grantId: grantId ?? '' }
    record({ kind: 'code.replayed', now, cause, ...about, note: REPLAY_NOTES[effect] })
    if (effect === 'revoked_grant') endGrant(about.grantId, now, cause, 'its code was replayed')
    return { kind: 'refused', replay: effect }
  }

  return {
    redeemCode(redemption: Redemption, now: number, cause: Cause): RedemptionResult {
      const { codeHash, appid, secretId, grantId } = redemption
      const found = findCode(codeHash)
      const code = found?.appid === appid ? found : undefined
      const verdict = judgeRedemption(findAuthentication(appid, secretId), code && storedCode(code), redemption, now)
      if (verdict === 'app_ended' || verdict === 'secret_ended') return { kind: verdict }
      if (verdict === 'refused' || !code) return { kind: 'refused', replay: 'none' }
      if (verdict !== 'redeemed') return replay(code, verdict, now, cause)

      const openid = completeGrant(redemption, code, now, cause)
      record({ kind: 'code.exchanged', now, cause, appid, userId: code.userId, grantId })
      return { kind: 'redeemed', openid }
    },
  }
}

/** A row as the rules see it. */
function storedCode({ usedAtMs, redirectUri, codeChallenge, expiresAtMs, isRevoked, isUserLive }: CodeRow): StoredCode {
  if (usedAtMs !== undefined) return { isUsed: true, usedAtMs, expiresAtMs }
  return { isUsed: false, redirectUri: redirectUri ?? '', codeChallenge, expiresAtMs, isEnded: isRevoked, isUserLive }
}
