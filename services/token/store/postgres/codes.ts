import {
  judgeIssuing,
  judgeRedemption,
  REPLAY_NOTES,
  type RedemptionVerdict,
  type ReplayVerdict,
  replayEffect,
  type StoredCode,
} from '../../../protocol/codes.js'
import { type Open, surplusOf } from '../../../protocol/surplus.js'
import { byteKey } from '../../../storage/bounded-map.js'
import type { Cause } from '../../../storage/cause.js'
import { groupBy } from '../../../storage/group-by.js'
import { GroupedWrites, type Steps } from '../../../storage/postgres/grouped-writes.js'
import { columnsOf, type Database, type Statement, type Transaction } from '../../../storage/postgres/transaction.js'
import { ENDED_AT, IS_NOT_ENDED, MAX_CODE_TTL_MS } from '../ended-codes.js'
import {
  type AppRow,
  type Consent,
  type Hash,
  noteOnConsent,
  type Redemption,
  type RedemptionResult,
  type TokenStore,
} from '../token-store.js'
import { type Audit, INSERT_EVENTS } from './audit.js'
import { type EndedGrant, endGrants, lockGrant } from './grants.js'
import {
  AUTHENTICATION,
  AUTHENTICATION_OF_ASKED,
  type AuthenticationColumns,
  authenticationOf,
  lockedUserOf,
  lockUserAndSession,
  shareApp,
} from './locks.js'

type CodeMethods = Pick<TokenStore, 'issueCode' | 'redeemCode'>

/** The columns of StoredCode except the last one. */
const CODE = `
  redirect_uri AS "redirectUri", code_challenge AS "codeChallenge", expires_at_ms AS "expiresAtMs",
  NOT ${IS_NOT_ENDED} AS "isEnded", used_at_ms AS "usedAtMs"`

const findCode: Statement = { name: 'find_code', text: `SELECT ${CODE} FROM codes WHERE code_hash = $1` }
const insertCode: Statement = {
  name: 'insert_code',
  text: `
    INSERT INTO codes
      (code_hash, appid, user_id, redirect_uri, code_challenge, scope, permissions, consent_version, issued_at_ms, expires_at_ms)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`,
}
/**
 * By the index codes_by_user. Only codes with the lifetime of the new one count, those issued after $3, however many have expired;
 * most users have fewer than $4.
 */
const OPEN_CODES = `
  FROM codes WHERE user_id = $1 AND appid = $2 AND issued_at_ms > $3 AND used_at_ms IS NULL AND ${IS_NOT_ENDED}`
const findOpenCodes: Statement = {
  name: 'find_open_codes',
  text: `
    SELECT code_hash AS "codeHash", issued_at_ms AS "beganAtMs", expires_at_ms AS "expiresAtMs" ${OPEN_CODES}
      AND (SELECT count(*) ${OPEN_CODES}) >= $4`,
}
const endCodes: Statement = {
  name: 'end_codes',
  text: `
    UPDATE codes SET expires_at_ms = ${ENDED_AT}
    WHERE code_hash = ANY ($1::bytea[]) AND used_at_ms IS NULL AND ${IS_NOT_ENDED}`,
}

/**
 * For many at once. Locks a code only if the appid matches, so that another app's attempts never lock it. The || '' keeps the
 * planner from the index that begins with the app.
 */
const lockCodes: Statement = {
  name: 'lock_codes',
  text: `
    WITH asked AS (
      SELECT * FROM unnest($1::text[], $2::text[], $3::bytea[]) WITH ORDINALITY AS asked (appid, secret_id, code_hash, place)
    ), ${AUTHENTICATION_OF_ASKED}
    SELECT ${AUTHENTICATION}, k.*
    FROM authentication a
      LEFT JOIN LATERAL (
        SELECT k.user_id AS "userId", k.scope, k.permissions, k.consent_version AS "consentVersion", k.grant_id AS "grantId", ${CODE}, NOT u.is_disabled AS "isUserLive"
        FROM codes k ${lockedUserOf('k')}
        WHERE k.code_hash = a.code_hash AND k.appid || '' = a.appid
        FOR UPDATE OF k
      ) k ON true
    ORDER BY a.place`,
}
/**
 * For many at once: finds or makes the openids and locks their rows, so that exchanges of one user and app run one after the
 * other.
 */
const takeOpenids: Statement = {
  name: 'take_openids',
  text: `
    WITH asked AS (
      SELECT DISTINCT ON (appid, user_id) * FROM unnest($1::text[], $2::text[], $3::text[]) AS asked (appid, user_id, openid)
      ORDER BY appid, user_id
    ), existing AS (
      SELECT o.* FROM asked CROSS JOIN LATERAL (
        SELECT appid, user_id, openid FROM openids WHERE appid = asked.appid AND user_id = asked.user_id
        FOR NO KEY UPDATE
      ) o
    ), made AS (
      INSERT INTO openids (appid, user_id, openid)
      SELECT * FROM asked WHERE (SELECT true FROM existing e WHERE e.appid = asked.appid AND e.user_id = asked.user_id) IS NULL
      ON CONFLICT (appid, user_id) DO UPDATE SET openid = openids.openid -- of another transaction, which has ended
      RETURNING appid, user_id, openid
    )
    SELECT appid, user_id AS "userId", openid FROM existing UNION ALL SELECT * FROM made`,
}
/** By the index grants_by_user: rows that are compared whole, and the + 0 below, keep the planner from grants_by_app. */
const OPEN_GRANTS = `
  FROM grants
  WHERE (user_id, appid) BETWEEN (asked.user_id, asked.appid) AND (asked.user_id, asked.appid) AND revoked_at_ms IS NULL`
/**
 * For many at once, sent after their openids are locked. Most users have so few grants to an app that all that are added fit, and
 * then no row is read.
 */
const findOpenGrants: Statement = {
  name: 'find_open_grants',
  text: `
    WITH crowded AS MATERIALIZED (
      SELECT appid, user_id FROM unnest($1::text[], $2::text[], $3::integer[]) AS asked (appid, user_id, max_grants)
      GROUP BY appid, user_id
      HAVING (SELECT count(*) ${OPEN_GRANTS}) + count(*) > min(max_grants)
    )
    SELECT asked.appid, asked.user_id AS "userId", g.*
    FROM crowded asked CROSS JOIN LATERAL (
      SELECT grant_id AS "grantId", created_at_ms AS "beganAtMs", expires_at_ms AS "expiresAtMs" ${OPEN_GRANTS}
      ORDER BY created_at_ms + 0, grant_id
    ) g`,
}
/** Everything that successful exchanges write, except the end of earlier grants. */
const redeem: Statement = {
  name: 'redeem',
  text: `
    WITH redeeming AS (
      SELECT * FROM unnest($1::bytea[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[],
          $8::text[], $9::text[], $10::bytea[], $11::bigint[], $12::bytea[], $13::bigint[], $14::text[], $15::text[], $16::text[])
        AS redeeming (code_hash, now_ms, grant_id, appid, user_id, openid, scope, permissions, consent_version,
          refresh_token_hash, expires_at_ms, access_token_hash, access_token_expires_at_ms, event_id, actor, request_id)
    ), used AS (
      UPDATE codes c
      SET (used_at_ms, grant_id) = (SELECT now_ms, grant_id FROM redeeming r WHERE r.code_hash = c.code_hash)
      WHERE code_hash = ANY ($1)
    ), granted AS (
      INSERT INTO grants
        (grant_id, appid, user_id, openid, scope, permissions, consent_version, refresh_token_hash, created_at_ms,
          last_used_at_ms, answers_read_at_ms, expires_at_ms)
      SELECT grant_id, appid, user_id, openid, scope, permissions, consent_version, refresh_token_hash, now_ms, now_ms, 0,
        expires_at_ms
      FROM redeeming
    ), token AS (
      INSERT INTO access_tokens (access_token_hash, grant_id, serial, expires_at_ms)
      SELECT access_token_hash, grant_id, 1, access_token_expires_at_ms FROM redeeming
    )
    ${INSERT_EVENTS}
    SELECT event_id, now_ms, 'code.exchanged', actor, '', '', request_id, appid, user_id, grant_id, '' FROM redeeming`,
}

/** One exchange to carry out. */
interface Exchange {
  readonly redemption: Redemption
  readonly now: number
  readonly cause: Cause
}

/** A row as the rules see it, but for its user. */
interface CodeColumns {
  readonly redirectUri: string
  readonly codeChallenge: string
  readonly expiresAtMs: number
  readonly isEnded: boolean
  readonly usedAtMs: number | null
}

interface FoundCode extends CodeColumns, Consent {
  readonly userId: string
  readonly scope: string
  /** null while it is unused. */
  readonly grantId: string | null
  readonly isUserLive: boolean
}

/** A request's app and secret, and its code; without one, `userId` and what follows are null. */
type LockedCode = AuthenticationColumns & (FoundCode | { readonly userId: null })

/** An exchange whose code is good. */
interface GoodExchange extends Exchange, Consent {
  readonly index: number
  readonly userId: string
  readonly scope: string
}

interface OpenGrant extends Open {
  readonly grantId: string
}

export function createCodeMethods(database: Database, audit: Audit): CodeMethods {
  const redemptions = new GroupedWrites(database, redemptionSteps(audit))

  return {
    async issueCode(code, now, cause) {
      if (code.expiresAtMs > now + MAX_CODE_TTL_MS) throw new TypeError('a code lives for an hour at most')
      return database.causedTransaction(cause, async (transaction) => {
        const { codeHash, appid, userId, sessionHash, redirectUri, codeChallenge, scope, expiresAtMs, maxLive } = code
        const { permissions, consentVersion } = code
        const issuedAfter = now - (expiresAtMs - now)
        const [app, session, existing, open] = await Promise.all([
          transaction.askOne<Pick<AppRow, 'isDisabled' | 'redirectUris'>>(shareApp, [appid]),
          transaction.askOne(lockUserAndSession, [userId, sessionHash]),
          transaction.askOne<CodeColumns>(findCode, [codeHash]),
          transaction.ask<Open & { readonly codeHash: Hash }>(findOpenCodes, [userId, appid, issuedAfter, maxLive]),
        ])
        const isSessionOpen = session !== undefined
        const facts = { app, isSessionOpen, existing: existing && storedCode(existing, isSessionOpen) }
        const verdict = judgeIssuing(facts, redirectUri, now)
        if (verdict !== 'issued') return verdict
        const surplus = surplusOf(open, maxLive, now)
        if (surplus.length > 0) transaction.write(endCodes, [surplus.map((each) => each.codeHash)])
        const bound = [codeHash, appid, userId, redirectUri, codeChallenge, scope]
        transaction.write(insertCode, [...bound, permissions, consentVersion, now, expiresAtMs])
        audit.write(transaction, now, cause, { kind: 'code.issued', appid, userId, note: noteOnConsent(code) })
        return 'issued'
      })
    },

    redeemCode: (redemption, now, cause) =>
      redemptions.submit(byteKey(redemption.codeHash), { redemption, now, cause }),
  }
}

function redemptionSteps(audit: Audit): Steps<Exchange, RedemptionResult> {
  return async (transaction, all) => {
    const locked = await transaction.ask<LockedCode>(
      lockCodes,
      columnsOf(all, [
        ({ redemption }) => redemption.appid,
        ({ redemption }) => redemption.secretId,
        ({ redemption }) => redemption.codeHash,
      ]),
    )
    // Exchanges of one code follow each other here too: those behind the first that succeeds are replays.
    const usedHere = new Map<string, Pick<FoundCode, 'usedAtMs' | 'grantId'>>()
    const good: GoodExchange[] = []
    const replays: (Exchange & {
      readonly index: number
      readonly code: FoundCode
      readonly verdict: ReplayVerdict
    })[] = []
    const results = all.map((each, index): RedemptionResult => {
      const { redemption, now } = each
      const found = locked[index]
      if (!found) throw new TypeError('there is a row for each exchange')
      const key = byteKey(redemption.codeHash)
      const code = found.userId === null ? undefined : { ...found, ...usedHere.get(key) }
      const authentication = authenticationOf(found, redemption.secretId)
      const verdict = judgeRedemption(authentication, code && storedCode(code, code.isUserLive), redemption, now)
      if (code && verdict === 'redeemed') {
        usedHere.set(key, { usedAtMs: now, grantId: redemption.grantId })
        const { userId, scope, permissions, consentVersion } = code
        good.push({ index, userId, scope, permissions, consentVersion, ...each })
      }
      if (code && isReplay(verdict)) replays.push({ index, code, verdict, ...each })
      return verdict === 'app_ended' || verdict === 'secret_ended'
        ? { kind: verdict }
        : { kind: 'refused', replay: 'none' }
    })
    for (const { index, openid } of await writeGrants(transaction, audit, good)) {
      results[index] = { kind: 'redeemed', openid }
    }
    for (const { index, ...each } of replays) results[index] = await replay(transaction, audit, each)
    return results
  }
}

const isReplay = (verdict: RedemptionVerdict): verdict is ReplayVerdict =>
  verdict === 'forgiven' || verdict === 'too_late' || verdict === 'ends_grant'

async function writeGrants(
  transaction: Transaction,
  audit: Audit,
  good: readonly GoodExchange[],
): Promise<(GoodExchange & { readonly openid: string })[]> {
  if (good.length === 0) return []
  const appids = good.map(({ redemption }) => redemption.appid)
  const userIds = good.map(({ userId }) => userId)
  const [taken, open] = await Promise.all([
    transaction.ask<{ appid: string; userId: string; openid: string }>(takeOpenids, [
      appids,
      userIds,
      good.map(({ redemption }) => redemption.newOpenid),
    ]),
    transaction.ask<OpenGrant & { readonly appid: string; readonly userId: string }>(findOpenGrants, [
      appids,
      userIds,
      good.map(({ redemption }) => redemption.maxGrants),
    ]),
  ])
  const openids = new Map(taken.map((row) => [userAndApp(row), row.openid]))
  const granted = good.map((each) => {
    const openid = openids.get(userAndApp({ ...each.redemption, ...each }))
    if (openid === undefined) throw new TypeError('there is an openid for each user and app')
    return { openid, ...each }
  })
  const columns = columnsOf(granted, [
    ({ redemption }) => redemption.codeHash,
    ({ now }) => now,
    ({ redemption }) => redemption.grantId,
    ({ redemption }) => redemption.appid,
    ({ userId }) => userId,
    ({ openid }) => openid,
    ({ scope }) => scope,
    ({ permissions }) => permissions,
    ({ consentVersion }) => consentVersion,
    ({ redemption }) => redemption.refreshTokenHash,
    ({ redemption }) => redemption.refreshTokenExpiresAtMs,
    ({ redemption }) => redemption.accessTokenHash,
    ({ redemption }) => redemption.accessTokenExpiresAtMs,
    ({ now }) => audit.newEventId(now),
    ({ cause }) => cause.actor,
    ({ cause }) => cause.requestId,
  ])
  transaction.write(redeem, columns)
  endGrants(transaction, audit, surplusGrants(good, groupBy(open, userAndApp)))
  return granted
}

const userAndApp = ({ appid, userId }: { readonly appid: string; readonly userId: string }) => `${appid} ${userId}`

/** What these exchanges, one after the other, push out. `open`: the grants before them, by user and app. */
function surplusGrants(good: readonly GoodExchange[], open: ReadonlyMap<string, readonly OpenGrant[]>): EndedGrant[] {
  const left = new Map(open)
  return good.flatMap(({ redemption, userId, now, cause }) => {
    const { appid, grantId, refreshTokenExpiresAtMs: expiresAtMs, maxGrants } = redemption
    const key = userAndApp({ appid, userId })
    const before = left.get(key) ?? []
    const surplus = surplusOf(before, maxGrants, now)
    left.set(key, [...before.filter((each) => !surplus.includes(each)), { grantId, beganAtMs: now, expiresAtMs }])
    const note = 'too many grants of one user to one app'
    return surplus.map((each) => ({ appid, userId, grantId: each.grantId, note, now, cause }))
  })
}

/** Audits a replay and ends its grant if it has that effect. */
async function replay(
  transaction: Transaction,
  audit: Audit,
  { redemption, now, cause, code, verdict }: Exchange & { readonly code: FoundCode; readonly verdict: ReplayVerdict },
): Promise<RedemptionResult> {
  const about = { appid: redemption.appid, userId: code.userId, grantId: code.grantId ?? '' }
  const grant =
    verdict === 'ends_grant' && (await transaction.askOne<{ revokedAtMs: number | null }>(lockGrant, [about.grantId]))
  const effect = replayEffect(verdict, !grant || grant.revokedAtMs !== null)
  audit.write(transaction, now, cause, { kind: 'code.replayed', ...about, note: REPLAY_NOTES[effect] })
  if (effect === 'revoked_grant') {
    endGrants(transaction, audit, [{ ...about, note: 'its code was replayed', now, cause }])
  }
  return { kind: 'refused', replay: effect }
}

/** A row as the rules see it. */
function storedCode(code: CodeColumns, isUserLive: boolean): StoredCode {
  const { usedAtMs, redirectUri, codeChallenge, expiresAtMs, isEnded } = code
  if (usedAtMs !== null) return { isUsed: true, usedAtMs, expiresAtMs }
  return { isUsed: false, redirectUri, codeChallenge, expiresAtMs, isEnded, isUserLive }
}
