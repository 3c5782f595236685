import {
  judgeIssuing,
  judgeRedemption,
  REPLAY_NOTES,
  type RedemptionVerdict,
  type ReplayVerdict,
  replayEffect,
  type StoredCode,
} from '../../../protocol/codes.js'
import type { Cause } from '../../../storage/cause.js'
import { GroupedWrites, type Steps } from '../../../storage/postgres/grouped-writes.js'
import { columnsOf, type Database, type Statement, type Transaction } from '../../../storage/postgres/transaction.js'
import { ENDED_AT, IS_NOT_ENDED, MAX_CODE_TTL_MS } from '../ended-codes.js'
import type { AppRow, Redemption, RedemptionResult, TokenStore } from '../token-store.js'
import { type Audit, INSERT_EVENTS } from './audit.js'
import { endGrant, lockGrant } from './grants.js'
import {
  AUTHENTICATION,
  type AuthenticationColumns,
  authenticationOf,
  authenticationOfAsked,
  lockedUserOf,
  lockUserAndSession,
  shareApp,
  waitingOrNot,
} from './locks.js'

type CodeMethods = Pick<TokenStore, 'issueCode' | 'redeemCode'>

const findCode: Statement = {
  name: 'find_code',
  text: `
    SELECT redirect_uri AS "redirectUri", code_challenge AS "codeChallenge", expires_at_ms AS "expiresAtMs",
      NOT ${IS_NOT_ENDED} AS "isEnded", used_at_ms AS "usedAtMs"
    FROM codes WHERE code_hash = $1`,
}
const insertCode: Statement = {
  name: 'insert_code',
  text: `
    INSERT INTO codes (code_hash, appid, user_id, redirect_uri, code_challenge, scope, issued_at_ms, expires_at_ms)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`,
}
/**
 * By the index codes_by_user: of the codes with its lifetime, those that one more code pushes out. Here and elsewhere, rows
 * found by a subquery are passed as an array: without statistics, the planner might run the subquery for every row of the
 * table.
 */
const endSurplusCodes: Statement = {
  name: 'end_surplus_codes',
  text: `
    UPDATE codes SET expires_at_ms = ${ENDED_AT}
    WHERE used_at_ms IS NULL AND ${IS_NOT_ENDED} AND code_hash = ANY (ARRAY(
      SELECT code_hash FROM codes
      WHERE user_id = $1 AND appid = $2 AND issued_at_ms > $5 AND used_at_ms IS NULL AND expires_at_ms > $3
      ORDER BY issued_at_ms DESC, code_hash DESC OFFSET $4))`,
}

/**
 * For many at once. Locks a code only if the appid matches, so that another app's attempts never lock it, and only while it is
 * unused, so that of many exchanges of one code the late ones do not wait for each other's commits.
 */
const lockUnusedCodes = waitingOrNot(
  'lock_unused_codes_to_redeem',
  (skip) => `
    WITH asked AS (
      SELECT * FROM unnest($1::text[], $2::text[], $3::bytea[]) WITH ORDINALITY AS asked (appid, secret_id, code_hash, place)
    ), ${authenticationOfAsked(skip)}
    SELECT ${AUTHENTICATION}, k.user_id AS "userId", k.scope, k.redirect_uri AS "redirectUri",
      k.code_challenge AS "codeChallenge", k.expires_at_ms AS "expiresAtMs", k.is_ended AS "isEnded", k.is_user_live AS "isUserLive"
    FROM authentication a
      LEFT JOIN LATERAL (
        SELECT k.user_id, k.scope, k.redirect_uri, k.code_challenge, k.expires_at_ms, NOT k.${IS_NOT_ENDED} AS is_ended,
          NOT u.is_disabled AS is_user_live
        FROM codes k ${lockedUserOf('k', skip)}
        WHERE k.code_hash = a.code_hash AND k.appid || '' = a.appid AND k.used_at_ms IS NULL
        FOR UPDATE OF k ${skip}
      ) k ON true
    ORDER BY a.place`,
)

const WAITING_FOR_OPENIDS = `
    known AS (
      INSERT INTO openids (appid, user_id, openid) SELECT appid, user_id, new_openid FROM first
      ON CONFLICT (appid, user_id) DO UPDATE SET openid = openids.openid
      RETURNING appid, user_id, openid
    )`
const SKIPPING_LOCKED_OPENIDS = `
    existing AS (
      SELECT o.* FROM first CROSS JOIN LATERAL (
        SELECT appid, user_id, openid FROM openids WHERE appid = first.appid AND user_id = first.user_id
        FOR NO KEY UPDATE SKIP LOCKED
      ) o
    ), made AS (
      INSERT INTO openids (appid, user_id, openid) SELECT appid, user_id, new_openid FROM first
      WHERE (SELECT true FROM openids o WHERE o.appid = first.appid AND o.user_id = first.user_id) IS NULL
      ORDER BY appid, user_id
      ON CONFLICT (appid, user_id) DO NOTHING
      RETURNING appid, user_id, openid
    ), known AS (
      SELECT * FROM existing UNION ALL SELECT * FROM made
    )`
/**
 * For many at once: finds or makes the openids and locks their rows, so that exchanges of one user and app run one after the
 * other. Of several of them, only the first gets a row.
 */
const takeOpenids = waitingOrNot(
  'take_openids',
  (skip) => `
    WITH first AS (
      SELECT DISTINCT ON (appid, user_id) appid, user_id, new_openid, place
      FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS asked (appid, user_id, new_openid, place)
      ORDER BY appid, user_id, place
    ), ${skip === '' ? WAITING_FOR_OPENIDS : SKIPPING_LOCKED_OPENIDS}
    SELECT first.place, known.openid FROM first JOIN known ON known.appid = first.appid AND known.user_id = first.user_id`,
)
/** For many at once. A used code never changes until the janitor removes it, so it needs no lock. */
const findUsedCodes: Statement = {
  name: 'find_used_codes',
  text: `
    SELECT used.*
    FROM unnest($1::bytea[], $2::text[]) WITH ORDINALITY AS asked (code_hash, appid, place)
      LEFT JOIN LATERAL (
        SELECT k.user_id AS "userId", k.expires_at_ms AS "expiresAtMs", k.used_at_ms AS "usedAtMs", k.grant_id AS "grantId"
        FROM codes k
        WHERE k.code_hash = asked.code_hash AND k.appid || '' = asked.appid AND k.used_at_ms IS NOT NULL
        OFFSET 0
      ) used ON true
    ORDER BY asked.place`,
}
/**
 * Everything that successful exchanges write, each for a different user or app. One more grant may push out others, each with
 * an event: these are found by the index grants_by_user, and rows that are compared whole and the + 0 keep the planner from
 * grants_by_app.
 */
const redeem: Statement = {
  name: 'redeem',
  text: `
    WITH redeeming AS (
      SELECT * FROM unnest($1::bytea[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[],
          $8::bytea[], $9::bigint[], $10::bytea[], $11::bigint[], $12::integer[], $13::text[], $14::text[], $15::text[],
          $16::text[])
        AS redeeming (code_hash, now_ms, grant_id, appid, user_id, openid, scope, refresh_token_hash, expires_at_ms,
          access_token_hash, access_token_expires_at_ms, max_earlier, first_event_id, event_id, actor, request_id)
    ), used AS (
      UPDATE codes c
      SET (used_at_ms, grant_id) = (SELECT now_ms, grant_id FROM redeeming r WHERE r.code_hash = c.code_hash)
      WHERE code_hash = ANY ($1)
    ), old AS (
      SELECT g.grant_id, r.first_event_id, r.now_ms, r.actor, r.request_id, r.appid, r.user_id
      FROM redeeming r CROSS JOIN LATERAL (
        SELECT grant_id FROM grants
        WHERE (user_id, appid) BETWEEN (r.user_id, r.appid) AND (r.user_id, r.appid)
          AND revoked_at_ms IS NULL AND expires_at_ms > r.now_ms
        ORDER BY created_at_ms + 0 DESC, grant_id DESC OFFSET r.max_earlier
      ) g
    ), surplus AS (
      UPDATE grants g SET revoked_at_ms = (SELECT now_ms FROM old WHERE old.grant_id = g.grant_id)
      WHERE grant_id = ANY (ARRAY(SELECT grant_id FROM old)) AND revoked_at_ms IS NULL
      RETURNING grant_id
    ), granted AS (
      INSERT INTO grants
        (grant_id, appid, user_id, openid, scope, refresh_token_hash, created_at_ms, last_used_at_ms, expires_at_ms)
      SELECT grant_id, appid, user_id, openid, scope, refresh_token_hash, now_ms, now_ms, expires_at_ms FROM redeeming
    ), token AS (
      INSERT INTO access_tokens (access_token_hash, grant_id, serial, expires_at_ms)
      SELECT access_token_hash, grant_id, 1, access_token_expires_at_ms FROM redeeming
    )
    ${INSERT_EVENTS}
    SELECT first_event_id || row_number() OVER (ORDER BY grant_id), now_ms, 'grant.revoked', actor, '', '', request_id, appid,
      user_id, grant_id, $17 FROM old JOIN surplus USING (grant_id)
    UNION ALL
    SELECT event_id, now_ms, 'code.exchanged', actor, '', '', request_id, appid, user_id, grant_id, '' FROM redeeming`,
}

const TOO_MANY = 'too many grants of one user to one app'

/** One exchange to carry out. */
interface NewGrant {
  readonly redemption: Redemption
  readonly now: number
  readonly cause: Cause
}

/** A request's app and secret, and its unused code; without one, `userId` and what follows are null. */
type LockedCode = AuthenticationColumns &
  (
    | (Omit<Extract<StoredCode, { isUsed: false }>, 'isUsed'> & {
        readonly userId: string
        readonly scope: string
      })
    | { readonly userId: null }
  )

interface UsedCode {
  readonly userId: string
  readonly expiresAtMs: number
  readonly usedAtMs: number
  readonly grantId: string
}

/** There is a row also for an exchange without a used code. */
type FoundCode = UsedCode | { readonly userId: null }

export function createCodeMethods(database: Database, audit: Audit): CodeMethods {
  const redemptions = new GroupedWrites(database, redemptionSteps(audit))

  return {
    async issueCode(code, now, cause) {
      if (code.expiresAtMs > now + MAX_CODE_TTL_MS) throw new TypeError('a code lives for an hour at most')
      return database.causedTransaction(cause, async (transaction) => {
        const { codeHash, appid, userId, sessionHash, redirectUri, codeChallenge, scope, expiresAtMs, maxLive } = code
        const [app, session, existing] = await Promise.all([
          transaction.askOne<Pick<AppRow, 'isDisabled' | 'redirectUris'>>(shareApp, [appid]),
          transaction.askOne(lockUserAndSession, [userId, sessionHash]),
          transaction.askOne<ExistingCode>(findCode, [codeHash]),
        ])
        const isSessionOpen = session !== undefined
        const facts = { app, isSessionOpen, existing: existing && storedCode(existing, isSessionOpen) }
        const verdict = judgeIssuing(facts, redirectUri, now)
        if (verdict !== 'issued') return verdict
        const issuedAfter = now - (expiresAtMs - now)
        transaction.write(endSurplusCodes, [userId, appid, now, maxLive - 1, issuedAfter])
        const values = [codeHash, appid, userId, redirectUri, codeChallenge, scope, now, expiresAtMs]
        transaction.write(insertCode, values)
        audit.write(transaction, now, cause, { kind: 'code.issued', appid, userId })
        return 'issued'
      })
    },

    redeemCode: (redemption, now, cause) => redemptions.submit(undefined, { redemption, now, cause }),
  }
}

function redemptionSteps(audit: Audit): Steps<NewGrant, RedemptionResult> {
  return async (transaction, all, mayWait) => {
    const locked = await transaction.ask<LockedCode>(
      lockUnusedCodes(mayWait),
      columnsOf(all, [
        ({ redemption }) => redemption.appid,
        ({ redemption }) => redemption.secretId,
        ({ redemption }) => redemption.codeHash,
      ]),
    )
    const results: (RedemptionResult | undefined)[] = []
    const judge = (index: number, code: StoredCode | undefined) => {
      const [each, found] = [all[index], locked[index]]
      if (!each || !found) throw new TypeError('there is a row for each exchange')
      const { redemption, now } = each
      return judgeRedemption(authenticationOf(found, redemption.secretId), code, redemption, now)
    }

    const good = all.flatMap((each, index) => {
      const found = locked[index]
      if (!found || found.userId === null) return []
      const verdict = judge(index, { ...found, isUsed: false })
      if (verdict !== 'redeemed') results[index] = refusal(verdict, mayWait)
      return verdict === 'redeemed' ? [{ ...each, index, userId: found.userId, scope: found.scope }] : []
    })
    const granted = await withOpenids(transaction, good, mayWait)
    for (const { index, openid } of granted) results[index] = { kind: 'redeemed', openid }
    if (granted.length > 0) writeGrants(transaction, audit, granted)

    // The others may be replays, also of codes that this transaction has just used.
    const others = all.flatMap((each, index) => {
      const isJudged =
        results[index] !== undefined || (locked[index]?.userId !== null && !good.some((one) => one.index === index))
      return isJudged ? [] : [{ ...each, index }]
    })
    if (others.length === 0) return results
    const used = await transaction.ask<FoundCode>(
      findUsedCodes,
      columnsOf(others, [({ redemption }) => redemption.codeHash, ({ redemption }) => redemption.appid]),
    )
    await Promise.all(
      others.map(async ({ index, ...each }, at) => {
        const code = used[at]
        const replayed = code && code.userId !== null ? code : undefined
        const verdict = judge(index, replayed && { isUsed: true, ...replayed })
        results[index] =
          replayed && isReplay(verdict)
            ? await replay(transaction, audit, each, replayed, verdict, mayWait)
            : refusal(verdict, mayWait)
      }),
    )
    return results
  }
}

const isReplay = (verdict: RedemptionVerdict): verdict is ReplayVerdict =>
  verdict === 'forgiven' || verdict === 'too_late' || verdict === 'ends_grant'

/** Without a result where a lock may have been skipped. */
function refusal(verdict: RedemptionVerdict, mayWait: boolean): RedemptionResult | undefined {
  if (!mayWait) return undefined
  return verdict === 'app_ended' || verdict === 'secret_ended' ? { kind: verdict } : { kind: 'refused', replay: 'none' }
}

interface GoodCode extends NewGrant {
  readonly index: number
  readonly userId: string
  readonly scope: string
}

/** Those whose openid could be locked, each with it: one for each user and app. */
async function withOpenids(
  transaction: Transaction,
  good: readonly GoodCode[],
  mayWait: boolean,
): Promise<(GoodCode & { readonly openid: string })[]> {
  if (good.length === 0) return []
  const taken = await transaction.ask<{ place: number; openid: string }>(
    takeOpenids(mayWait),
    columnsOf(good, [
      ({ redemption }) => redemption.appid,
      ({ userId }) => userId,
      ({ redemption }) => redemption.newOpenid,
    ]),
  )
  return taken.flatMap(({ place, openid }) => {
    const code = good[place - 1]
    return code ? [{ ...code, openid }] : []
  })
}

function writeGrants(
  transaction: Transaction,
  audit: Audit,
  granted: readonly (GoodCode & { readonly openid: string })[],
): void {
  const columns = columnsOf(granted, [
    ({ redemption }) => redemption.codeHash,
    ({ now }) => now,
    ({ redemption }) => redemption.grantId,
    ({ redemption }) => redemption.appid,
    ({ userId }) => userId,
    ({ openid }) => openid,
    ({ scope }) => scope,
    ({ redemption }) => redemption.refreshTokenHash,
    ({ redemption }) => redemption.refreshTokenExpiresAtMs,
    ({ redemption }) => redemption.accessTokenHash,
    ({ redemption }) => redemption.accessTokenExpiresAtMs,
    ({ redemption }) => redemption.maxGrants - 1,
    ({ now }) => audit.newEventId(now),
    ({ now }) => audit.newEventId(now),
    ({ cause }) => cause.actor,
    ({ cause }) => cause.requestId,
  ])
  transaction.write(redeem, [...columns, TOO_MANY])
}

/** Audits a replay and ends its grant if it has that effect. To lock the grant it may have to wait: if it must not, no result. */
async function replay(
  transaction: Transaction,
  audit: Audit,
  { redemption: { appid }, now, cause }: NewGrant,
  { userId, grantId }: UsedCode,
  verdict: ReplayVerdict,
  mayWait: boolean,
): Promise<RedemptionResult | undefined> {
  const mayEnd = verdict === 'ends_grant'
  if (mayEnd && !mayWait) return undefined
  const grant = mayEnd && (await transaction.askOne<{ revokedAtMs: number | null }>(lockGrant, [grantId]))
  const effect = replayEffect(verdict, !grant || grant.revokedAtMs !== null)
  audit.write(transaction, now, cause, { kind: 'code.replayed', appid, userId, grantId, note: REPLAY_NOTES[effect] })
  if (effect === 'revoked_grant') {
    endGrant(transaction, audit, { appid, userId, grantId, note: 'its code was replayed' }, now, cause)
  }
  return { kind: 'refused', replay: effect }
}

interface ExistingCode {
  readonly redirectUri: string
  readonly codeChallenge: string
  readonly expiresAtMs: number
  readonly isEnded: boolean
  readonly usedAtMs: number | null
}

/** A row as the rules see it. */
function storedCode({ usedAtMs, ...code }: ExistingCode, isUserLive: boolean): StoredCode {
  if (usedAtMs !== null) return { isUsed: true, usedAtMs, expiresAtMs: code.expiresAtMs }
  return { isUsed: false, ...code, isUserLive }
}
