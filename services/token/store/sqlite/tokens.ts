import type { Connection } from '../../../sqlite/open.js'
import type { AccessTokenRow, Cause, Hash, Minting, MintingResult } from '../token-store.js'
import type { RecordEvent } from './audit.js'
import type { RecheckApp } from './secrets.js'
import type { VerifiedTokens } from './verified-tokens.js'

/** Columns of the lookup below, in order. */
type AccessTokenRecord = [
  grantId: string,
  appid: string,
  userId: string,
  openid: string,
  scope: string,
  nickname: string,
  avatar: string,
  expiresAtMs: number,
  grantLastUsedAtMs: number,
  isRevoked: number,
]

export function tokenReads(db: Connection, verified: VerifiedTokens) {
  const find = db
    .prepare<[Hash], AccessTokenRecord>(
      // Every data request of a token not seen lately runs this. Primary keys of all four tables.
      `SELECT g.grant_id, g.appid, g.user_id, g.openid, g.scope, u.nickname, u.avatar, t.expires_at_ms,
         g.last_used_at_ms, g.revoked_at_ms IS NOT NULL OR a.is_disabled OR u.is_disabled
       FROM access_tokens t
         JOIN grants g ON g.grant_id = t.grant_id
         JOIN apps a ON a.appid = g.appid
         JOIN users u ON u.user_id = g.user_id
       WHERE t.access_token_hash = ?`,
    )
    .raw()

  function look(accessTokenHash: Hash): AccessTokenRow | undefined {
    const record = find.get(accessTokenHash)
    return (
      record && {
        grantId: record[0],
        appid: record[1],
        userId: record[2],
        openid: record[3],
        scope: record[4],
        nickname: record[5],
        avatar: record[6],
        expiresAtMs: record[7],
        grantLastUsedAtMs: record[8],
        isRevoked: record[9] === 1,
      }
    )
  }

  return { findAccessToken: (accessTokenHash: Hash) => verified.find(accessTokenHash, look) }
}

export function tokenWrites(db: Connection, record: RecordEvent, recheckApp: RecheckApp) {
  const findGrant = db.prepare<
    [{ refreshTokenHash: Hash; appid: string; now: number }],
    { grantId: string; userId: string }
  >(
    // Index grants_by_refresh_token; primary key of users.
    `SELECT g.grant_id AS grantId, g.user_id AS userId
     FROM grants g JOIN users u ON u.user_id = g.user_id
     WHERE g.refresh_token_hash = :refreshTokenHash AND g.appid = :appid
       AND g.revoked_at_ms IS NULL AND g.expires_at_ms > :now AND u.is_disabled = 0`,
  )
  const findNewest = db.prepare<[string], { serial: number }>(
    // Index access_tokens_by_grant, backwards.
    'SELECT serial FROM access_tokens WHERE grant_id = ? ORDER BY serial DESC LIMIT 1',
  )
  const shorten = db.prepare<[{ grantId: string; endMs: number }]>(
    // Index access_tokens_by_grant.
    'UPDATE access_tokens SET expires_at_ms = :endMs WHERE grant_id = :grantId AND expires_at_ms > :endMs',
  )
  const findSurplus = db.prepare<[{ grantId: string; now: number; keep: number }], { serial: number }>(
    // Index access_tokens_by_grant, backwards.
    `SELECT serial FROM access_tokens WHERE grant_id = :grantId AND expires_at_ms > :now
     ORDER BY serial DESC LIMIT 1 OFFSET :keep`,
  )
  const removeOld = db.prepare<[{ grantId: string; now: number; upTo: number }]>(
    // Index access_tokens_by_grant. Expired ones go too, so that a grant never has more rows than live tokens.
    'DELETE FROM access_tokens WHERE grant_id = :grantId AND (expires_at_ms <= :now OR serial <= :upTo)',
  )
  const insert = db.prepare<[Hash, string, number, number]>(
    'INSERT INTO access_tokens (access_token_hash, grant_id, serial, expires_at_ms) VALUES (?, ?, ?, ?)',
  )
  const markUsed = db.prepare<[{ grantId: string; now: number }]>(
    // Primary key.
    'UPDATE grants SET last_used_at_ms = :now WHERE grant_id = :grantId AND last_used_at_ms < :now',
  )

  return {
    mintAccessToken(args: { minting: Minting; now: number; cause: Cause }): MintingResult {
      const { minting, now, cause } = args
      const { refreshTokenHash, appid } = minting
      const recheck = recheckApp(appid, minting.secretId, now)
      if (recheck !== 'good') return recheck
      const grant = findGrant.get({ refreshTokenHash, appid, now })
      if (!grant) return 'refused'

      const { grantId, userId } = grant
      const serial = (findNewest.get(grantId)?.serial ?? 0) + 1
      shorten.run({ grantId, endMs: now + minting.overlapMs })
      const surplus = findSurplus.get({ grantId, now, keep: minting.maxLive - 1 })
      removeOld.run({ grantId, now, upTo: surplus?.serial ?? 0 })
      insert.run(minting.accessTokenHash, grantId, serial, minting.accessTokenExpiresAtMs)
      markUsed.run({ grantId, now })
      record({ kind: 'token.refreshed', now, cause, appid, userId, grantId })
      return 'minted'
    },
  }
}
