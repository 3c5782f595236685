import type { Database, Statement, Transaction } from '../../../postgres/transaction.js'
import type { Cause, Redemption, RedemptionResult, TokenStore } from '../token-store.js'
import { type Audit, INSERT_EVENTS } from './audit.js'
import { type Ended, shareApp, WITH_CREDENTIALS } from './credentials.js'
import { lockGrant, revokeGrant } from './grants.js'

type CodeMethods = Pick<TokenStore, 'issueCode' | 'redeemCode'>

/** Codes of one user are issued one after the other, so that the cap holds. */
const lockUserOfNewCode: Statement = {
  name: 'lock_user_of_new_code',
  text: 'SELECT is_disabled AS "isDisabled" FROM users WHERE user_id = $1 FOR NO KEY UPDATE',
}
const findCode: Statement = {
  name: 'find_code',
  text: `
    SELECT used_at_ms IS NULL AND expires_at_ms > $2 AS "isLive" FROM codes WHERE code_hash = $1`,
}
const insertCode: Statement = {
  name: 'insert_code',
  text: `
    INSERT INTO codes (code_hash, appid, user_id, redirect_uri, scope, issued_at_ms, expires_at_ms)
    VALUES ($1, $2, $3, $4, $5, $6, $7)`,
}
/**
 * By the index codes_by_user: what one more code pushes out of those that live as long as it does. Rows that are found
 * first are named as an array, here and elsewhere: a planner that has no statistics yet may look for them once for every
 * row of the table.
 */
const deleteSurplusCodes: Statement = {
  name: 'delete_surplus_codes',
  text: `
    DELETE FROM codes WHERE used_at_ms IS NULL AND code_hash = ANY (ARRAY(
      SELECT code_hash FROM codes
      WHERE user_id = $1 AND appid = $2 AND issued_at_ms > $5 AND used_at_ms IS NULL AND expires_at_ms > $3
      ORDER BY issued_at_ms DESC, code_hash DESC OFFSET $4))`,
}

/**
 * Only where the appid fits, so that another app's attempts hold no lock on the code; and only while it is unused, so
 * that of many exchanges of one code those which come too late do not wait for each other's commits. The row of its openid
 * is made, or written as it is, to lock it and read it: exchanges of one user and app go one after the other.
 */
const lockUnusedCode: Statement = {
  name: 'lock_unused_code',
  text: `
    ${WITH_CREDENTIALS}, code AS (
      SELECT c.user_id, c.redirect_uri, c.scope, NOT u.is_disabled AND c.expires_at_ms > $3 AS is_good
      FROM codes c JOIN users u ON u.user_id = c.user_id
      WHERE c.code_hash = $4 AND c.appid = $1 AND c.used_at_ms IS NULL AND (SELECT ended FROM credentials) IS NULL
      FOR SHARE OF u FOR UPDATE OF c
    ), known AS (
      INSERT INTO openids (appid, user_id, openid) SELECT $1, user_id, $5 FROM code WHERE is_good
      ON CONFLICT (appid, user_id) DO UPDATE SET openid = openids.openid
      RETURNING openid
    )
    SELECT credentials.ended, code.user_id AS "userId", code.redirect_uri AS "redirectUri", code.scope, known.openid
    FROM credentials LEFT JOIN code ON true LEFT JOIN known ON true`,
}
/** What is used stays as it is until the janitor removes it: nobody needs to lock it. */
const findUsedCode: Statement = {
  name: 'find_used_code',
  text: `
    SELECT user_id AS "userId", expires_at_ms AS "expiresAtMs", used_at_ms AS "usedAtMs", grant_id AS "grantId"
    FROM codes WHERE code_hash = $1 AND appid = $2 AND used_at_ms IS NOT NULL`,
}
/** The whole success in one statement. By the index grants_by_user: one more grant may push out others, each with its event. */
const redeem: Statement = {
  name: 'redeem',
  text: `
    WITH used AS (
      UPDATE codes SET used_at_ms = $2, grant_id = $3 WHERE code_hash = $1
    ), surplus AS (
      UPDATE grants SET revoked_at_ms = $2 WHERE revoked_at_ms IS NULL AND grant_id = ANY (ARRAY(
        SELECT grant_id FROM grants
        WHERE user_id = $5 AND appid = $4 AND revoked_at_ms IS NULL AND expires_at_ms > $2
        ORDER BY created_at_ms DESC, grant_id DESC OFFSET $12))
      RETURNING grant_id
    ), granted AS (
      INSERT INTO grants
        (grant_id, appid, user_id, openid, scope, refresh_token_hash, created_at_ms, last_used_at_ms, expires_at_ms)
      VALUES ($3, $4, $5, $6, $7, $8, $2, $2, $9)
    ), token AS (
      INSERT INTO access_tokens (access_token_hash, grant_id, serial, expires_at_ms) VALUES ($10, $3, 1, $11)
    )
    ${INSERT_EVENTS}
    SELECT $13 || row_number() OVER (ORDER BY grant_id), $2, 'grant.revoked', $15, $16, $4, $5, grant_id, $17
    FROM surplus
    UNION ALL VALUES ($14, $2, 'code.exchanged', $15, $16, $4, $5, $3, '')`,
}

const TOO_MANY = 'too many grants of one user to one app'

const refused: RedemptionResult = { kind: 'refused', replay: 'none' }

/** `userId` is null when there is no such unused code, `openid` when it has expired or its user is disabled. */
interface LockedCode {
  readonly ended: Ended
  readonly userId: string | null
  readonly redirectUri: string
  readonly scope: string
  readonly openid: string | null
}

interface UsedCode {
  readonly userId: string
  readonly expiresAtMs: number
  readonly usedAtMs: number
  readonly grantId: string
}

export function createCodeMethods(database: Database, audit: Audit): CodeMethods {
  return {
    issueCode(code, now, cause) {
      return database.transaction(async (transaction) => {
        const { codeHash, appid, userId, redirectUri, scope, expiresAtMs, maxLive } = code
        const [app, user, existing] = await Promise.all([
          transaction.askOne<{ isDisabled: boolean }>(shareApp, [appid]),
          transaction.askOne<{ isDisabled: boolean }>(lockUserOfNewCode, [userId]),
          transaction.askOne<{ isLive: boolean }>(findCode, [codeHash, now]),
        ])
        if (!app || app.isDisabled || !user || user.isDisabled) return 'refused'
        if (existing) return existing.isLive ? 'exists_live' : 'exists_ended'
        const issuedAfter = now - (expiresAtMs - now)
        transaction.write(deleteSurplusCodes, [userId, appid, now, maxLive - 1, issuedAfter])
        transaction.write(insertCode, [codeHash, appid, userId, redirectUri, scope, now, expiresAtMs])
        audit.write(transaction, now, cause, { kind: 'code.issued', appid, userId })
        return 'issued'
      })
    },

    redeemCode(redemption, now, cause) {
      return database.transaction(async (transaction): Promise<RedemptionResult> => {
        const { codeHash, appid, secretId, redirectUri, grantId } = redemption
        const found = await transaction.askOne<LockedCode>(lockUnusedCode, [
          appid,
          secretId,
          now,
          codeHash,
          redemption.newOpenid,
        ])
        if (!found || found.ended) return { kind: found?.ended ?? 'app_ended' }
        const { userId, scope, openid } = found
        if (userId === null) {
          const used = await transaction.askOne<UsedCode>(findUsedCode, [codeHash, appid])
          return used ? replay(transaction, audit, redemption, used, now, cause) : refused
        }
        if (openid === null || (redirectUri !== undefined && redirectUri !== found.redirectUri)) return refused
        transaction.write(redeem, [
          codeHash,
          now,
          grantId,
          appid,
          userId,
          openid,
          scope,
          redemption.refreshTokenHash,
          redemption.refreshTokenExpiresAtMs,
          redemption.accessTokenHash,
          redemption.accessTokenExpiresAtMs,
          redemption.maxGrants - 1,
          audit.newEventId(now),
          audit.newEventId(now),
          cause.actor,
          cause.requestId,
          TOO_MANY,
        ])
        return { kind: 'redeemed', openid }
      })
    },
  }
}

/** decisions 10: audited; from the end of the grace to the code's expiry it ends the grant that the code produced. */
async function replay(
  transaction: Transaction,
  audit: Audit,
  redemption: Redemption,
  code: UsedCode,
  now: number,
  cause: Cause,
): Promise<RedemptionResult> {
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
    return refused
  }
  note('ends the grant')
  const grant = await transaction.askOne<{ revokedAtMs: number | null }>(lockGrant, [grantId])
  if (grant?.revokedAtMs === null) {
    transaction.write(revokeGrant, [grantId, now])
    const ended = { kind: 'grant.revoked', appid, userId, grantId, note: 'its code was replayed' } as const
    audit.write(transaction, now, cause, ended)
  }
  return { kind: 'refused', replay: 'revoked_grant' }
}
