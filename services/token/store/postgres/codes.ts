import type { Database, Statement, Transaction } from '../../../postgres/transaction.js'
import type { Cause, Redemption, RedemptionResult, TokenStore } from '../token-store.js'
import type { Audit } from './audit.js'
import { lockCredentials } from './credentials.js'
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
 * that of many exchanges of one code those which come too late do not wait for each other's commits.
 */
const lockUnusedCode: Statement = {
  name: 'lock_unused_code',
  text: `
    SELECT c.user_id AS "userId", u.is_disabled AS "isUserDisabled", c.redirect_uri AS "redirectUri", c.scope,
      c.expires_at_ms AS "expiresAtMs"
    FROM codes c JOIN users u ON u.user_id = c.user_id
    WHERE c.code_hash = $1 AND c.appid = $2 AND c.used_at_ms IS NULL
    FOR SHARE OF u FOR UPDATE OF c`,
}
/** What is used stays as it is until the janitor removes it: nobody needs to lock it. */
const findUsedCode: Statement = {
  name: 'find_used_code',
  text: `
    SELECT user_id AS "userId", expires_at_ms AS "expiresAtMs", used_at_ms AS "usedAtMs", grant_id AS "grantId"
    FROM codes WHERE code_hash = $1 AND appid = $2 AND used_at_ms IS NOT NULL`,
}
const lockOpenid: Statement = {
  name: 'lock_openid',
  text: `
    SELECT o.openid FROM codes c JOIN openids o ON o.appid = c.appid AND o.user_id = c.user_id
    WHERE c.code_hash = $1 AND c.appid = $2 AND c.used_at_ms IS NULL
    FOR UPDATE OF o`,
}
/** Writes the row as it is when another transaction has just made it, to lock it and read its openid. */
const makeOpenid: Statement = {
  name: 'make_openid',
  text: `
    INSERT INTO openids (appid, user_id, openid) VALUES ($1, $2, $3)
    ON CONFLICT (appid, user_id) DO UPDATE SET openid = openids.openid
    RETURNING openid`,
}
/** By the index grants_by_user: ends the live grants which one more pushes out, each with its event. */
const revokeSurplusGrants: Statement = {
  name: 'revoke_surplus_grants',
  text: `
    WITH surplus AS (
      UPDATE grants SET revoked_at_ms = $3 WHERE revoked_at_ms IS NULL AND grant_id = ANY (ARRAY(
        SELECT grant_id FROM grants
        WHERE user_id = $1 AND appid = $2 AND revoked_at_ms IS NULL AND expires_at_ms > $3
        ORDER BY created_at_ms DESC, grant_id DESC OFFSET $4))
      RETURNING grant_id
    )
    INSERT INTO audit_events (event_id, at_ms, kind, actor, request_id, appid, user_id, grant_id, note)
    SELECT $5 || row_number() OVER (ORDER BY grant_id), $3, 'grant.revoked', $6, $7, $2, $1, grant_id, $8
    FROM surplus`,
}
/** The whole success in one statement. */
const redeem: Statement = {
  name: 'redeem',
  text: `
    WITH used AS (
      UPDATE codes SET used_at_ms = $2, grant_id = $3 WHERE code_hash = $1
    ), granted AS (
      INSERT INTO grants
        (grant_id, appid, user_id, openid, scope, refresh_token_hash, created_at_ms, last_used_at_ms, expires_at_ms)
      VALUES ($3, $4, $5, $6, $7, $8, $2, $2, $9)
    )
    INSERT INTO access_tokens (access_token_hash, grant_id, serial, expires_at_ms) VALUES ($10, $3, 1, $11)`,
}

const TOO_MANY = 'too many grants of one user to one app'

const refused: RedemptionResult = { kind: 'refused', replay: 'none' }

interface UnusedCode {
  readonly userId: string
  readonly isUserDisabled: boolean
  readonly redirectUri: string
  readonly scope: string
  readonly expiresAtMs: number
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
        const [ended, user, existing] = await Promise.all([
          lockCredentials(transaction, appid, undefined, now),
          transaction.askOne<{ isDisabled: boolean }>(lockUserOfNewCode, [userId]),
          transaction.askOne<{ isLive: boolean }>(findCode, [codeHash, now]),
        ])
        if (ended || !user || user.isDisabled) return 'refused'
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
        const { codeHash, appid, secretId, redirectUri } = redemption
        const [ended, code, known] = await Promise.all([
          lockCredentials(transaction, appid, secretId, now),
          transaction.askOne<UnusedCode>(lockUnusedCode, [codeHash, appid]),
          transaction.askOne<{ openid: string }>(lockOpenid, [codeHash, appid]),
        ])
        if (ended) return { kind: ended }
        if (!code) {
          const used = await transaction.askOne<UsedCode>(findUsedCode, [codeHash, appid])
          return used ? replay(transaction, audit, redemption, used, now, cause) : refused
        }
        if (code.isUserDisabled || now >= code.expiresAtMs) return refused
        if (redirectUri !== undefined && redirectUri !== code.redirectUri) return refused
        const openid = known?.openid ?? (await firstOpenid(transaction, redemption, code.userId))
        succeed(transaction, audit, redemption, { ...code, openid }, now, cause)
        return { kind: 'redeemed', openid }
      })
    },
  }
}

/** The openid of a user whom the app has not seen before. */
async function firstOpenid(transaction: Transaction, redemption: Redemption, userId: string): Promise<string> {
  const { appid, newOpenid } = redemption
  const [made] = await transaction.write<{ openid: string }>(makeOpenid, [appid, userId, newOpenid])
  return made?.openid ?? newOpenid
}

function succeed(
  transaction: Transaction,
  audit: Audit,
  redemption: Redemption,
  code: UnusedCode & { readonly openid: string },
  now: number,
  cause: Cause,
): void {
  const { appid, grantId, maxGrants } = redemption
  const { userId, openid, scope } = code
  const { actor, requestId } = cause
  const values = [userId, appid, now, maxGrants - 1, audit.newEventId(now), actor, requestId, TOO_MANY]
  transaction.write(revokeSurplusGrants, values)
  transaction.write(redeem, [
    redemption.codeHash,
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
  ])
  audit.write(transaction, now, cause, { kind: 'code.exchanged', appid, userId, grantId })
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
