import type { Cause } from '../../../storage/cause.js'
import { GroupedWrites, type Steps } from '../../../storage/postgres/grouped-writes.js'
import { columnsOf, type Database, type Statement, type Transaction } from '../../../storage/postgres/transaction.js'
import { ENDED_AT, IS_NOT_ENDED, MAX_CODE_TTL_MS } from '../ended-codes.js'
import type { AppRow, Redemption, RedemptionResult, TokenStore } from '../token-store.js'
import { type Audit, INSERT_EVENTS } from './audit.js'
import { endGrant, lockGrant } from './grants.js'
import { credentialsOfAsked, type Ended, lockedUserOf, lockUserAndSession, shareApp, waitingOrNot } from './locks.js'

type CodeMethods = Pick<TokenStore, 'issueCode' | 'redeemCode'>

const findCode: Statement = {
  name: 'find_code',
  text: `
    SELECT used_at_ms IS NULL AND expires_at_ms > $2 AND ${IS_NOT_ENDED} AS "isLive" FROM codes WHERE code_hash = $1`,
}
const insertCode: Statement = {
  name: 'insert_code',
  text: `
    INSERT INTO codes (code_hash, appid, user_id, redirect_uri, scope, issued_at_ms, expires_at_ms)
    VALUES ($1, $2, $3, $4, $5, $6, $7)`,
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

/** Locks the rows of the openids, so that exchanges of one user and app run one after the other. */
const MADE_OR_LOCKED = `
    known AS (
      INSERT INTO openids (appid, user_id, openid) SELECT appid, user_id, new_openid FROM first
      ON CONFLICT (appid, user_id) DO UPDATE SET openid = openids.openid
      RETURNING appid, user_id, openid
    )`
const MADE_OR_LOCKED_AT_ONCE = `
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
 * For many at once. Locks a code only if the appid matches, so that another app's attempts never lock it, and only while it is
 * unused, so that of many exchanges of one code the late ones do not wait for each other's commits. Of several exchanges of
 * one user and app, only the first gets an openid.
 */
const lockUnusedCodes = waitingOrNot(
  'lock_unused_codes_to_redeem',
  (skip) => `
    WITH asked AS (
      SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bytea[], $5::text[], $6::text[])
        WITH ORDINALITY AS asked (appid, secret_id, now_ms, code_hash, redirect_uri, new_openid, place)
    ), ${credentialsOfAsked(skip)}, code AS (
      SELECT c.place, c.appid, c.new_openid, k.* FROM credentials c CROSS JOIN LATERAL (
        SELECT k.user_id, k.scope, NOT u.is_disabled AND k.expires_at_ms > c.now_ms AND k.${IS_NOT_ENDED}
          AND coalesce(c.redirect_uri, k.redirect_uri) = k.redirect_uri AS is_good
        FROM codes k ${lockedUserOf('k', skip)}
        WHERE k.code_hash = c.code_hash AND k.appid || '' = c.appid AND k.used_at_ms IS NULL AND c.ended IS NULL
        FOR UPDATE OF k ${skip}
      ) k
    ), first AS (
      SELECT DISTINCT ON (appid, user_id) place, appid, user_id, new_openid FROM code WHERE is_good
      ORDER BY appid, user_id, place
    ), ${skip === '' ? MADE_OR_LOCKED : MADE_OR_LOCKED_AT_ONCE}
    SELECT c.ended, code.user_id AS "userId", code.scope, known.openid
    FROM credentials c
      LEFT JOIN code ON code.place = c.place
      LEFT JOIN first ON first.place = c.place
      LEFT JOIN known ON known.appid = first.appid AND known.user_id = first.user_id
    ORDER BY c.place`,
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
    SELECT first_event_id || row_number() OVER (ORDER BY grant_id), now_ms, 'grant.revoked', actor, request_id, appid,
      user_id, grant_id, $17 FROM old JOIN surplus USING (grant_id)
    UNION ALL
    SELECT event_id, now_ms, 'code.exchanged', actor, request_id, appid, user_id, grant_id, '' FROM redeeming`,
}

const TOO_MANY = 'too many grants of one user to one app'

const refused: RedemptionResult = { kind: 'refused', replay: 'none' }

/** One exchange to carry out. */
interface NewGrant {
  readonly redemption: Redemption
  readonly now: number
  readonly cause: Cause
}

/** `userId` is null when there is no such unused code, `openid` when the code is not good for this exchange. */
interface LockedCode {
  readonly ended: Ended
  readonly userId: string | null
  readonly scope: string
  readonly openid: string | null
}

/** For the compiler only: there is a row for each exchange. */
const NO_CODE: LockedCode = { ended: 'app_ended', userId: null, scope: '', openid: null }

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
        const { codeHash, appid, userId, sessionHash, redirectUri, scope, expiresAtMs, maxLive } = code
        const [app, session, existing] = await Promise.all([
          transaction.askOne<Pick<AppRow, 'isDisabled' | 'redirectUris'>>(shareApp, [appid]),
          transaction.askOne(lockUserAndSession, [userId, sessionHash]),
          transaction.askOne<{ isLive: boolean }>(findCode, [codeHash, now]),
        ])
        if (!app || app.isDisabled) return 'app_ended'
        if (!app.redirectUris.includes(redirectUri)) return 'redirect_uri_ended'
        if (!session) return 'session_ended'
        if (existing) return existing.isLive ? 'exists_live' : 'exists_ended'
        const issuedAfter = now - (expiresAtMs - now)
        transaction.write(endSurplusCodes, [userId, appid, now, maxLive - 1, issuedAfter])
        transaction.write(insertCode, [codeHash, appid, userId, redirectUri, scope, now, expiresAtMs])
        audit.write(transaction, now, cause, { kind: 'code.issued', appid, userId })
        return 'issued'
      })
    },

    redeemCode: (redemption, now, cause) => redemptions.submit(undefined, { redemption, now, cause }),
  }
}

function redemptionSteps(audit: Audit): Steps<NewGrant, RedemptionResult> {
  return async (transaction, all, mayWait) => {
    const found = await transaction.ask<LockedCode>(
      lockUnusedCodes(mayWait),
      columnsOf(all, [
        ({ redemption }) => redemption.appid,
        ({ redemption }) => redemption.secretId,
        ({ now }) => now,
        ({ redemption }) => redemption.codeHash,
        ({ redemption: { redirectUri } }) => redirectUri ?? null,
        ({ redemption }) => redemption.newOpenid,
      ]),
    )
    const good = all.flatMap((each, index) => {
      const { userId, scope, openid } = found[index] ?? NO_CODE
      return openid === null ? [] : [{ ...each, userId, scope, openid }]
    })
    if (good.length > 0) {
      const columns = columnsOf(good, [
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
    const mayBeUsed = found.some(({ ended, openid }) => ended === null && openid === null)
    const used = mayBeUsed
      ? await transaction.ask<FoundCode>(
          findUsedCodes,
          columnsOf(all, [({ redemption }) => redemption.codeHash, ({ redemption }) => redemption.appid]),
        )
      : []
    const results = all.map((each, index) => {
      const { ended, openid } = found[index] ?? NO_CODE
      if (openid !== null) return { kind: 'redeemed', openid } as const
      if (ended) return mayWait ? { kind: ended } : undefined
      const code = used[index]
      if (code && code.userId !== null) return replay(transaction, audit, each, code, mayWait)
      return mayWait ? refused : undefined
    })
    return Promise.all(results)
  }
}

/**
 * decisions 10: audited; from the end of the grace to the code's expiry it ends the grant that the code produced. To lock that
 * grant it may have to wait: if it must not, there is no result.
 */
async function replay(
  transaction: Transaction,
  audit: Audit,
  { redemption, now, cause }: NewGrant,
  code: UsedCode,
  mayWait: boolean,
): Promise<RedemptionResult | undefined> {
  const { appid, replayGraceMs } = redemption
  const { userId, grantId } = code
  const note = (text: string) =>
    audit.write(transaction, now, cause, { kind: 'code.replayed', appid, userId, grantId, note: text })
  if (now < code.usedAtMs + replayGraceMs) {
    note('within the grace: forgiven')
    return { kind: 'refused', replay: 'forgiven' }
  }
  if (now >= code.expiresAtMs) {
    note('after its expiry: without effect')
    return { kind: 'refused', replay: 'too_late' }
  }
  if (!mayWait) return undefined
  const grant = await transaction.askOne<{ revokedAtMs: number | null }>(lockGrant, [grantId])
  if (grant?.revokedAtMs !== null) {
    note('the grant had already ended')
    return { kind: 'refused', replay: 'already_revoked' }
  }
  note('ends the grant')
  endGrant(transaction, audit, { appid, userId, grantId, note: 'its code was replayed' }, now, cause)
  return { kind: 'refused', replay: 'revoked_grant' }
}
