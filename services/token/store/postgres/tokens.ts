import { byteKey } from '../../../collections/bounded-map.js'
import { GroupedWrites } from '../../../postgres/grouped-writes.js'
import { Lookups } from '../../../postgres/lookups.js'
import { columnsOf, type Database, type Statement } from '../../../postgres/transaction.js'
import type { Cause } from '../../../store/cause.js'
import {
  type AccessTokenRow,
  LAST_USE_RESOLUTION_MS,
  type Minting,
  type MintingResult,
  type TokenStore,
} from '../token-store.js'
import { type Audit, INSERT_EVENTS } from './audit.js'
import { credentialsOfAsked, type Ended, lockedUserOf, waitingOrNot } from './locks.js'

type TokenMethods = Pick<TokenStore, 'mintAccessToken' | 'findAccessToken'>

/**
 * For many at once; `place` says which row belongs to which request. Here and elsewhere each is looked up as if it were the
 * only one: one join for all might begin at the wrong end and read a whole index. By the unique index of refresh_token_hash;
 * only if the appid matches, as for codes, and the || '' keeps the planner from the app's own index.
 */
const lockGrantsToMint = waitingOrNot(
  'lock_grants_to_mint',
  (skip) => `
    WITH asked AS (
      SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bytea[])
        WITH ORDINALITY AS asked (appid, secret_id, now_ms, refresh_token_hash, place)
    ), ${credentialsOfAsked(skip)}
    SELECT c.ended, live.grant_id AS "grantId", live.user_id AS "userId", coalesce(live.is_live, false) AS "isLive"
    FROM credentials c
      LEFT JOIN LATERAL (
        SELECT g.grant_id, g.user_id,
          g.revoked_at_ms IS NULL AND g.expires_at_ms > c.now_ms AND NOT u.is_disabled AS is_live
        FROM grants g ${lockedUserOf('g', skip)}
        WHERE g.refresh_token_hash = c.refresh_token_hash AND g.appid || '' = c.appid AND c.ended IS NULL
        FOR NO KEY UPDATE OF g ${skip}
      ) live ON true
    ORDER BY c.place`,
)
/**
 * For many at once, each of a different grant. By the index access_tokens_by_grant. Since the grant is locked, a minting sees
 * the tokens of the one before it: the new token becomes the newest, the others end with the overlap, and those beyond the cap
 * are removed.
 */
const mint: Statement = {
  name: 'mint',
  text: `
    WITH minting AS (
      SELECT * FROM unnest($1::bytea[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::integer[], $7::text[],
          $8::text[], $9::text[], $10::text[], $11::text[])
        AS minting (access_token_hash, grant_id, expires_at_ms, now_ms, end_ms, max_live, event_id,
          actor, request_id, appid, user_id)
    ), earlier AS (
      SELECT t.access_token_hash, t.expires_at_ms, t.age >= m.max_live AS is_surplus, m.end_ms
      FROM minting m CROSS JOIN LATERAL (
        SELECT access_token_hash, expires_at_ms, row_number() OVER (ORDER BY serial DESC) AS age
        FROM access_tokens WHERE grant_id = m.grant_id AND expires_at_ms + 0 > m.now_ms
      ) t
    ), removed AS (
      DELETE FROM access_tokens
      WHERE access_token_hash = ANY (ARRAY(SELECT access_token_hash FROM earlier WHERE is_surplus))
    ), longer AS (
      SELECT access_token_hash, end_ms FROM earlier WHERE NOT is_surplus AND expires_at_ms > end_ms
    ), shortened AS (
      UPDATE access_tokens t
      SET expires_at_ms = (SELECT end_ms FROM longer l WHERE l.access_token_hash = t.access_token_hash)
      WHERE access_token_hash = ANY (ARRAY(SELECT access_token_hash FROM longer))
    ), used AS (
      UPDATE grants g SET last_used_at_ms = (SELECT now_ms FROM minting m WHERE m.grant_id = g.grant_id)
      WHERE grant_id = ANY ($2)
        AND last_used_at_ms <= (SELECT now_ms FROM minting m WHERE m.grant_id = g.grant_id) - ${LAST_USE_RESOLUTION_MS}
    ), minted AS (
      INSERT INTO access_tokens (access_token_hash, grant_id, serial, expires_at_ms)
      SELECT access_token_hash, grant_id, 1 + coalesce(
          (SELECT max(serial) FROM access_tokens t WHERE t.grant_id = minting.grant_id), 0), expires_at_ms
      FROM minting
    )
    ${INSERT_EVENTS}
    SELECT event_id, now_ms, 'token.refreshed', actor, request_id, appid, user_id, grant_id, '' FROM minting`,
}
/** Primary keys of all four tables. */
const findAccessToken: Statement = {
  name: 'find_access_token',
  text: `
    SELECT g.grant_id AS "grantId", g.appid, g.user_id AS "userId", g.openid, g.scope, u.nickname, u.avatar,
      t.expires_at_ms AS "expiresAtMs", g.last_used_at_ms AS "grantLastUsedAtMs",
      g.revoked_at_ms IS NOT NULL OR a.is_disabled OR u.is_disabled AS "isRevoked"
    FROM access_tokens t
      JOIN grants g ON g.grant_id = t.grant_id
      JOIN apps a ON a.appid = g.appid
      JOIN users u ON u.user_id = g.user_id
    WHERE t.access_token_hash = $1`,
}
/** One minting to carry out. */
interface NewToken {
  readonly minting: Minting
  readonly now: number
  readonly cause: Cause
}

/** `isLive` implies that nothing has `ended`. */
interface LockedGrant {
  readonly ended: Ended
  readonly grantId: string
  readonly userId: string
  readonly isLive: boolean
}

/** For the compiler only: there is a row for each minting. */
const NO_GRANT: LockedGrant = { ended: 'app_ended', grantId: '', userId: '', isLive: false }

export function createTokenMethods(database: Database, audit: Audit): TokenMethods {
  const accessTokens = new Lookups<AccessTokenRow>(database, findAccessToken, ['bytea'])

  const mintings = new GroupedWrites<NewToken, MintingResult>(database, async (transaction, all, mayWait) => {
    const found = await transaction.ask<LockedGrant>(
      lockGrantsToMint(mayWait),
      columnsOf(all, [
        ({ minting }) => minting.appid,
        ({ minting }) => minting.secretId ?? null,
        ({ now }) => now,
        ({ minting }) => minting.refreshTokenHash,
      ]),
    )
    const good = all.flatMap((each, index) => {
      const { isLive, grantId, userId } = found[index] ?? NO_GRANT
      return isLive ? [{ ...each, grantId, userId }] : []
    })
    if (good.length > 0) {
      transaction.write(
        mint,
        columnsOf(good, [
          ({ minting }) => minting.accessTokenHash,
          ({ grantId }) => grantId,
          ({ minting }) => minting.accessTokenExpiresAtMs,
          ({ now }) => now,
          ({ minting, now }) => now + minting.overlapMs,
          ({ minting }) => minting.maxLive,
          ({ now }) => audit.newEventId(now),
          ({ cause }) => cause.actor,
          ({ cause }) => cause.requestId,
          ({ minting }) => minting.appid,
          ({ userId }) => userId,
        ]),
      )
    }
    return all.map((_, index) => {
      const { ended, isLive } = found[index] ?? NO_GRANT
      if (isLive) return 'minted'
      return mayWait ? (ended ?? 'refused') : undefined
    })
  })

  return {
    mintAccessToken: (minting, now, cause) =>
      mintings.submit(byteKey(minting.refreshTokenHash), { minting, now, cause }),

    findAccessToken: async ({ hash }) => hash && accessTokens.findOne(hash),
  }
}
