import type { Connection } from '../../../sqlite/open.js'
import {
  type AccessTokenRow,
  type Cause,
  type Hash,
  LAST_USE_RESOLUTION_MS,
  type Minting,
  type MintingResult,
} from '../token-store.js'
import type { RecordEvent } from './audit.js'
import type { KeptRows } from './kept-rows.js'
import type { CheckApp } from './secrets.js'

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

export function tokenReads(db: Connection, kept: KeptRows) {
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

  return { findAccessToken: (accessTokenHash: Hash) => kept.findToken(accessTokenHash, look) }
}

export function tokenWrites(db: Connection, record: RecordEvent, checkApp: CheckApp) {
  const findGrant = db.prepare<[Hash, string, number], { grantId: string; userId: string; lastUsedAtMs: number }>(
    // Index grants_by_refresh_token; primary key of users.
    `SELECT g.grant_id AS grantId, g.user_id AS userId, g.last_used_at_ms AS lastUsedAtMs
     FROM grants g JOIN users u ON u.user_id = g.user_id
     WHERE g.refresh_token_hash = ? AND g.appid = ?
       AND g.revoked_at_ms IS NULL AND g.expires_at_ms > ? AND u.is_disabled = 0`,
  )
  const findTokens = db
    .prepare<[string], [serial: number, expiresAtMs: number]>(
      // Index access_tokens_by_grant, backwards. Once for all that follows: every row found is looked up in the table.
      'SELECT serial, expires_at_ms FROM access_tokens WHERE grant_id = ? ORDER BY serial DESC',
    )
    .raw()
  const shorten = db.prepare<[number, string, number]>(
    // Index access_tokens_by_grant.
    'UPDATE access_tokens SET expires_at_ms = ? WHERE grant_id = ? AND serial = ?',
  )
  const remove = db.prepare<[string, number]>(
    // Index access_tokens_by_grant.
    'DELETE FROM access_tokens WHERE grant_id = ? AND serial = ?',
  )
  const insert = db.prepare<[Hash, string, number, number]>(
    'INSERT INTO access_tokens (access_token_hash, grant_id, serial, expires_at_ms) VALUES (?, ?, ?, ?)',
  )
  const markUsed = db.prepare<[number, string]>(
    // Primary key.
    'UPDATE grants SET last_used_at_ms = ? WHERE grant_id = ?',
  )

  /**
   * Shortens what outlives the overlap and removes what has expired or is one too many, so that a grant never has more
   * rows than live tokens. Returns the serial of the next.
   */
  function makeRoom(grantId: string, { overlapMs, maxLive }: Minting, now: number): number {
    const tokens = findTokens.all(grantId)
    const endMs = now + overlapMs
    let live = 0
    for (const [serial, expiresAtMs] of tokens) {
      if (Math.min(expiresAtMs, endMs) > now) live += 1
      if (Math.min(expiresAtMs, endMs) <= now || live >= maxLive) remove.run(grantId, serial)
      else if (expiresAtMs > endMs) shorten.run(endMs, grantId, serial)
    }
    return (tokens[0]?.[0] ?? 0) + 1
  }

  return {
    mintAccessToken(args: { minting: Minting; now: number; cause: Cause }): MintingResult {
      const { minting, now, cause } = args
      const { refreshTokenHash, appid } = minting
      const app = checkApp(appid, minting.secretId, now)
      if (app !== 'good') return app
      const grant = findGrant.get(refreshTokenHash, appid, now)
      if (!grant) return 'refused'

      const { grantId, userId } = grant
      const serial = makeRoom(grantId, minting, now)
      insert.run(minting.accessTokenHash, grantId, serial, minting.accessTokenExpiresAtMs)
      if (now - grant.lastUsedAtMs >= LAST_USE_RESOLUTION_MS) markUsed.run(now, grantId)
      record({ kind: 'token.refreshed', now, cause, appid, userId, grantId })
      return 'minted'
    },
  }
}
