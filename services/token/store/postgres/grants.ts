import { byteKey } from '../../../collections/bounded-map.js'
import { inParts } from '../../../collections/in-parts.js'
import { GroupedWrites } from '../../../postgres/grouped-writes.js'
import { Lookups } from '../../../postgres/lookups.js'
import { columnsOf, type Database, type Statement, type Transaction } from '../../../postgres/transaction.js'
import { foundOfEach } from '../../../store/found-of-each.js'
import { cutPage, formatTimePosition, parseTimePosition, type TimePosition } from '../page.js'
import {
  type AccessTokenRow,
  type Cause,
  type GrantRow,
  LAST_USE_RESOLUTION_MS,
  type Minting,
  type MintingResult,
  type PresentedToken,
  type TokenStore,
  USES_AT_A_TIME,
} from '../token-store.js'
import { type Audit, type Happening, INSERT_EVENTS } from './audit.js'
import { credentialsOfAsked, type Ended, lockedUserOf, waitingOrNot } from './credentials.js'

type GrantMethods = Pick<
  TokenStore,
  | 'mintAccessToken'
  | 'findAccessToken'
  | 'findAccessTokens'
  | 'listGrants'
  | 'revokeGrant'
  | 'disconnectApp'
  | 'recordUses'
>

/**
 * For many at once; `place` says which is whose. Each is looked for as if it were the only one, here and elsewhere: a join of
 * many may begin at the wrong end and read all of an index. By the unique index of refresh_token_hash; only where the appid
 * fits, as for codes, and the || '' keeps the planner from the app's own index.
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
 * For many at once, each of another grant. By the index access_tokens_by_grant. The lock on the grant lets one minting see
 * the tokens of the one before: the new token is the newest, the others end with the overlap, and those beyond the cap are
 * gone.
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
const findGrant: Statement = {
  name: 'find_grant',
  text: 'SELECT appid, user_id AS "userId" FROM grants WHERE grant_id = $1',
}
export const lockGrant: Statement = {
  name: 'lock_grant',
  text: 'SELECT revoked_at_ms AS "revokedAtMs" FROM grants WHERE grant_id = $1 FOR NO KEY UPDATE',
}
const revokeGrant: Statement = {
  name: 'revoke_grant',
  text: 'UPDATE grants SET revoked_at_ms = $2 WHERE grant_id = $1',
}
/** Keeps codes from being issued meanwhile, which would be found only after the grant is locked. */
const shareUser: Statement = {
  name: 'share_user',
  text: 'SELECT 1 FROM users WHERE user_id = $1 FOR SHARE',
}
/** By the index codes_by_user. */
const lockUnusedCodes: Statement = {
  name: 'lock_unused_codes',
  text: `
    SELECT code_hash FROM codes WHERE user_id = $1 AND appid = $2 AND used_at_ms IS NULL
    ORDER BY code_hash FOR UPDATE`,
}
const deleteUnusedCodes: Statement = {
  name: 'delete_unused_codes',
  text: 'DELETE FROM codes WHERE user_id = $1 AND appid = $2 AND used_at_ms IS NULL',
}
/** By the index grants_by_user. After the codes are locked, so that grants are found which they have just become. */
const lockGrantsOfUser: Statement = {
  name: 'lock_grants_of_user',
  text: `
    SELECT grant_id AS "grantId" FROM grants WHERE user_id = $1 AND appid = $2 AND revoked_at_ms IS NULL
    ORDER BY grant_id FOR NO KEY UPDATE`,
}
const lockGrants: Statement = {
  name: 'lock_grants',
  text: 'SELECT 1 FROM grants WHERE grant_id = ANY ($1::text[]) ORDER BY grant_id FOR NO KEY UPDATE',
}
const recordGrantUses: Statement = {
  name: 'record_grant_uses',
  text: `
    UPDATE grants SET last_used_at_ms = used.at_ms
    FROM unnest($1::text[], $2::bigint[]) AS used (grant_id, at_ms)
    WHERE grants.grant_id = used.grant_id AND grants.last_used_at_ms < used.at_ms`,
}
const lockSecrets: Statement = {
  name: 'lock_secrets',
  text: 'SELECT 1 FROM app_secrets WHERE secret_id = ANY ($1::text[]) ORDER BY secret_id FOR NO KEY UPDATE',
}
const recordSecretUses: Statement = {
  name: 'record_secret_uses',
  text: `
    UPDATE app_secrets SET last_used_at_ms = used.at_ms
    FROM unnest($1::text[], $2::bigint[]) AS used (secret_id, at_ms)
    WHERE app_secrets.secret_id = used.secret_id
      AND (app_secrets.last_used_at_ms IS NULL OR app_secrets.last_used_at_ms < used.at_ms)`,
}

/** Before the newest grant. */
const FIRST: TimePosition = { atMs: Number.MAX_SAFE_INTEGER, id: '' }

/** What one minting is asked to do. */
interface NewToken {
  readonly minting: Minting
  readonly now: number
  readonly cause: Cause
}

/** `isLive` only if nothing has `ended`. */
interface LockedGrant {
  readonly ended: Ended
  readonly grantId: string
  readonly userId: string
  readonly isLive: boolean
}

/** What cannot be, for example for a text with U+0000. */
const NO_GRANT: LockedGrant = { ended: 'app_ended', grantId: '', userId: '', isLive: false }

type GrantColumns = Omit<GrantRow, 'revokedAtMs'> & { readonly revokedAtMs: number | null }

/** Revokes a grant that is locked and not revoked yet. */
export function endGrant(
  transaction: Transaction,
  audit: Audit,
  grant: Required<Pick<Happening, 'appid' | 'userId' | 'grantId'>> & Pick<Happening, 'note'>,
  now: number,
  cause: Cause,
): void {
  transaction.write(revokeGrant, [grant.grantId, now])
  audit.write(transaction, now, cause, { kind: 'grant.revoked', ...grant })
}

export function createGrantMethods(database: Database, audit: Audit): GrantMethods {
  const accessTokens = new Lookups<AccessTokenRow>(database, findAccessToken, ['bytea'])
  const findToken = async ({ hash }: PresentedToken) => hash && accessTokens.findOne(hash)

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

  /** Rows are locked in the order of their ids, so that two processes do not wait for each other. */
  async function recordAll(uses: ReadonlyMap<string, number>, lock: Statement, record: Statement): Promise<void> {
    for (const some of inParts([...uses], USES_AT_A_TIME)) {
      const ids = some.map(([id]) => id)
      const times = some.map(([, atMs]) => atMs)
      await database.transaction(async (transaction) => {
        await transaction.ask(lock, [ids])
        transaction.write(record, [ids, times])
      })
    }
  }

  return {
    mintAccessToken: (minting, now, cause) =>
      mintings.submit(byteKey(minting.refreshTokenHash), { minting, now, cause }),

    findAccessToken: findToken,
    findAccessTokens: (tokens) => foundOfEach(tokens.map(findToken)),

    async listGrants(filter, { limit, after }) {
      const { appid, userId, liveAtMs } = filter
      const { atMs, id } = after === undefined ? FIRST : parseTimePosition(after)
      const filters = [appid, userId, liveAtMs].filter((value) => value !== undefined)
      const statement = listGrants(appid !== undefined, userId !== undefined, liveAtMs !== undefined)
      const rows = await database.read<GrantColumns>(statement, [atMs, id, limit + 1, ...filters])
      const grants = rows.map((row): GrantRow => ({ ...row, revokedAtMs: row.revokedAtMs ?? undefined }))
      return cutPage(grants, limit, ({ createdAtMs, grantId }) =>
        formatTimePosition({ atMs: createdAtMs, id: grantId }),
      )
    },

    revokeGrant(grantId, now, cause) {
      return database.transaction(async (transaction) => {
        const found = await transaction.askOne<{ appid: string; userId: string }>(findGrant, [grantId])
        if (!found) return 'not_found'
        const { appid, userId } = found
        // In the order of redemptions: user, codes, grant. Waits for mintings in progress: they hold the grant.
        const [, , grant] = await Promise.all([
          transaction.ask(shareUser, [userId]),
          transaction.ask(lockUnusedCodes, [userId, appid]),
          transaction.askOne<{ revokedAtMs: number | null }>(lockGrant, [grantId]),
        ])
        if (!grant) return 'not_found'
        if (grant.revokedAtMs !== null) return 'already_revoked'
        transaction.write(deleteUnusedCodes, [userId, appid])
        endGrant(transaction, audit, { appid, userId, grantId }, now, cause)
        return 'revoked'
      })
    },

    disconnectApp(grantId, userId, now, cause) {
      return database.transaction(async (transaction) => {
        const found = await transaction.askOne<{ appid: string; userId: string }>(findGrant, [grantId])
        if (found?.userId !== userId) return 'not_found'
        const { appid } = found
        const [, , left] = await Promise.all([
          transaction.ask(shareUser, [userId]),
          transaction.ask(lockUnusedCodes, [userId, appid]),
          transaction.ask<{ grantId: string }>(lockGrantsOfUser, [userId, appid]),
        ])
        transaction.write(deleteUnusedCodes, [userId, appid])
        for (const each of left) endGrant(transaction, audit, { appid, userId, grantId: each.grantId }, now, cause)
        return left.length > 0 ? 'revoked' : 'already_revoked'
      })
    },

    async recordUses({ grants, secrets }) {
      await recordAll(secrets, lockSecrets, recordSecretUses)
      await recordAll(grants, lockGrants, recordGrantUses)
    },
  }
}

/** By the index access_tokens_by_grant. */
const NEWEST_EXPIRY = `
  coalesce((SELECT t.expires_at_ms FROM access_tokens t WHERE t.grant_id = g.grant_id ORDER BY t.serial DESC LIMIT 1), 0)`

/** By the index grants_by_user or grants_by_app when filtered, else grants_by_creation. */
function listGrants(byApp: boolean, byUser: boolean, onlyLive: boolean): Statement {
  const filters = [
    byApp && 'g.appid =',
    byUser && 'g.user_id =',
    onlyLive && `g.revoked_at_ms IS NULL AND greatest(g.expires_at_ms, ${NEWEST_EXPIRY}) >`,
  ]
  const conditions = filters.filter((filter) => filter !== false).map((filter, index) => `AND ${filter} $${index + 4}`)
  return {
    name: ['list_grants', byApp && 'of_app', byUser && 'of_user', onlyLive && 'live'].filter(Boolean).join('_'),
    text: `
      SELECT g.grant_id AS "grantId", g.appid, a.name AS "appName", g.user_id AS "userId", u.username, g.openid,
        g.scope, g.created_at_ms AS "createdAtMs", g.last_used_at_ms AS "lastUsedAtMs",
        g.expires_at_ms AS "expiresAtMs", ${NEWEST_EXPIRY} AS "accessExpiresAtMs", g.revoked_at_ms AS "revokedAtMs"
      FROM grants g JOIN apps a ON a.appid = g.appid JOIN users u ON u.user_id = g.user_id
      WHERE (g.created_at_ms, g.grant_id) < ($1, $2) ${conditions.join(' ')}
      ORDER BY g.created_at_ms DESC, g.grant_id DESC LIMIT $3`,
  }
}
