import type { Permissions } from '../../../protocol/consent.js'
import { judgeRefresh } from '../../../protocol/refresh.js'
import type { Cause } from '../../../storage/cause.js'
import type { Connection } from '../../../storage/sqlite/open.js'
import {
  type AccessTokenRow,
  type Hash,
  LAST_USE_RESOLUTION_MS,
  type Minting,
  type MintingResult,
  type PresentedToken,
  termsOf,
} from '../token-store.js'
import type { RecordEvent } from './audit.js'
import { findExpiry, inSlotsOf, packTokens, placeNumber, requireOnePlace, unpackTokens } from './grant-row.js'
import type { KeptTokens } from './kept-tokens.js'
import type { FindAuthentication } from './secrets.js'

/** Columns of the lookup below, in its order. */
type GrantRecord = [
  grantId: string,
  appid: string,
  userId: string,
  openid: string,
  scope: string,
  externalId: string,
  nickname: string,
  avatar: string,
  tokens: Buffer,
  grantLastUsedAtMs: number,
  permissions: Permissions,
  appReadsAnswers: number,
  answersReadAtMs: number,
  isRevoked: number,
]

export function tokenReads(db: Connection, kept: KeptTokens) {
  const findGrants = db
    .prepare<[{ place: bigint }], GrantRecord>(
      // Runs for every data request whose token is not kept. Primary keys of all three tables.
      `SELECT g.grant_id, g.appid, g.user_id, g.openid, g.scope, u.external_id, u.nickname, u.avatar, g.access_tokens,
         g.last_used_at_ms, g.permissions, a.reads_answers, g.answers_read_at_ms,
         g.revoked_at_ms IS NOT NULL OR a.is_disabled OR u.is_disabled
       FROM grants g
         JOIN apps a ON a.appid = g.appid
         JOIN users u ON u.user_id = g.user_id
       WHERE g.${inSlotsOf(':place')}`,
    )
    .raw()

  function look(hash: Hash): AccessTokenRow | undefined {
    for (const record of findGrants.all({ place: placeNumber(hash) })) {
      const expiresAtMs = findExpiry(record[8], hash)
      if (expiresAtMs === undefined) continue
      return {
        grantId: record[0],
        appid: record[1],
        userId: record[2],
        openid: record[3],
        scope: record[4],
        externalId: record[5],
        nickname: record[6],
        avatar: record[7],
        expiresAtMs,
        grantLastUsedAtMs: record[9],
        permissions: record[10],
        appReadsAnswers: record[11] === 1,
        answersReadAtMs: record[12],
        isRevoked: record[13] === 1,
      }
    }
    return undefined
  }

  return {
    findAccessToken: (token: PresentedToken) => kept.find(token, look),
  }
}

/** Columns of the lookup of a refresh, in its order. */
type RefreshRecord = [
  place: bigint,
  grantId: string,
  userId: string,
  lastUsedAtMs: bigint,
  expiresAtMs: bigint,
  revokedAtMs: bigint | null,
  isUserDisabled: bigint,
  tokens: Buffer,
]

interface MintingDeps {
  readonly record: RecordEvent
  readonly findAuthentication: FindAuthentication
}

export function tokenWrites(db: Connection, { record, findAuthentication }: MintingDeps) {
  const findGrant = db
    .prepare<[place: bigint, place: bigint, refreshTokenHash: Hash, appid: string], RefreshRecord>(
      // Primary keys. The + before a column keeps the planner from the index of the app's grants, which is long.
      `SELECT g.place, g.grant_id, g.user_id, g.last_used_at_ms, g.expires_at_ms, g.revoked_at_ms, u.is_disabled,
         g.access_tokens
       FROM grants g JOIN users u ON u.user_id = g.user_id
       WHERE g.${inSlotsOf('?')} AND g.refresh_token_hash = +? AND +g.appid = ?`,
    )
    .raw()
    .safeIntegers()
  const update = db.prepare<[Buffer, number | bigint, bigint]>(
    // Primary key; changes no index.
    'UPDATE grants SET access_tokens = ?, last_used_at_ms = ? WHERE place = ?',
  )

  return {
    mintAccessToken(minting: Minting, now: number, cause: Cause): MintingResult {
      const { refreshTokenHash, appid } = minting
      const at = placeNumber(refreshTokenHash)
      const found = findGrant.get(at, at, refreshTokenHash, appid)
      const [
        place = 0n,
        grantId = '',
        userId = '',
        lastUsedAtMs = 0n,
        expiresAtMs,
        revokedAtMs,
        isUserDisabled,
        packed,
      ] = found ?? []
      const grant = packed && {
        expiresAtMs: Number(expiresAtMs),
        isRevoked: revokedAtMs !== null,
        isUserLive: isUserDisabled === 0n,
        tokens: unpackTokens(packed),
      }
      const terms = termsOf(minting, grantId)
      const verdict = judgeRefresh(findAuthentication(appid, minting.secretId), grant, terms, now)
      if (verdict.kind !== 'minted' && verdict.kind !== 'shared') return { kind: verdict.kind }

      const isUseDue = now - Number(lastUsedAtMs) >= LAST_USE_RESOLUTION_MS
      if (packed && (verdict.kind === 'minted' || isUseDue)) {
        const tokens = verdict.kind === 'minted' ? packTokens(verdict.tokens) : packed
        update.run(tokens, isUseDue ? now : lastUsedAtMs, place)
      }
      if (verdict.kind === 'minted') {
        requireOnePlace(verdict.tokens[0]?.hash ?? refreshTokenHash, refreshTokenHash)
        record({ kind: 'token.refreshed', now, cause, appid, userId, grantId })
      }
      return { kind: 'good', grantId, expiresAtMs: verdict.expiresAtMs }
    },
  }
}
