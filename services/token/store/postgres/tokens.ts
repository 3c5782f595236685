import { judgeRefresh, type RefreshedGrant, type StoredToken } from '../../../protocol/refresh.js'
import { byteKey } from '../../../storage/bounded-map.js'
import type { Cause } from '../../../storage/cause.js'
import { groupBy } from '../../../storage/group-by.js'
import { GroupedReads } from '../../../storage/postgres/grouped-reads.js'
import { GroupedWrites, type Steps } from '../../../storage/postgres/grouped-writes.js'
import { columnsOf, type Database, type Statement, type Value } from '../../../storage/postgres/transaction.js'
import {
  type AccessTokenRow,
  type GrantRow,
  LAST_USE_RESOLUTION_MS,
  type Minting,
  type MintingResult,
  type PresentedToken,
  type TokenStore,
  termsOf,
} from '../token-store.js'
import { type Audit, INSERT_EVENTS } from './audit.js'
import {
  AUTHENTICATION,
  AUTHENTICATION_OF_ASKED,
  type AuthenticationColumns,
  authenticationOf,
  lockedUserOf,
} from './locks.js'

type TokenMethods = Pick<TokenStore, 'mintAccessToken' | 'findAccessToken'>

/**
 * For many at once; `place` says which row belongs to which request. Here and elsewhere each is looked up as if it were the
 * only one: one join for all might begin at the wrong end and read a whole index. By the unique index of refresh_token_hash;
 * only if the appid matches, as for codes, and the || '' keeps the planner from the app's own index.
 */
const lockGrantsToMint: Statement = {
  name: 'lock_grants_to_mint',
  text: `
    WITH asked AS (
      SELECT * FROM unnest($1::text[], $2::text[], $3::bytea[])
        WITH ORDINALITY AS asked (appid, secret_id, refresh_token_hash, place)
    ), ${AUTHENTICATION_OF_ASKED}
    SELECT ${AUTHENTICATION}, g.grant_id AS "grantId", g.user_id AS "userId", g.expires_at_ms AS "expiresAtMs",
      g.revoked_at_ms IS NOT NULL AS "isRevoked", NOT g.is_disabled AS "isUserLive", g.last_used_at_ms AS "lastUsedAtMs"
    FROM authentication a
      LEFT JOIN LATERAL (
        SELECT g.grant_id, g.user_id, g.expires_at_ms, g.revoked_at_ms, g.last_used_at_ms, u.is_disabled
        FROM grants g ${lockedUserOf('g')}
        WHERE g.refresh_token_hash = a.refresh_token_hash AND g.appid || '' = a.appid
        FOR NO KEY UPDATE OF g
      ) g ON true
    ORDER BY a.place`,
}
/** For many at once, sent after the locks, so that it finds the tokens of the refresh before. By the index access_tokens_by_grant. */
const findTokensOfGrants: Statement = {
  name: 'find_tokens_of_grants',
  text: `
    SELECT t.*
    FROM (SELECT DISTINCT unnest($1::bytea[]) AS refresh_token_hash) asked CROSS JOIN LATERAL (
      SELECT grant_id AS "grantId", access_token_hash AS hash, serial, expires_at_ms AS "expiresAtMs"
      FROM access_tokens
      WHERE grant_id = (SELECT grant_id FROM grants g WHERE g.refresh_token_hash = asked.refresh_token_hash)
      OFFSET 0
    ) t
    ORDER BY t.serial DESC`,
}
/** What refreshes write: tokens that are new, that end sooner and that have ended; last uses; events. */
const mint: Statement = {
  name: 'mint',
  text: `
    WITH removed AS (
      DELETE FROM access_tokens WHERE access_token_hash = ANY ($1::bytea[])
    ), shorter AS (
      SELECT * FROM unnest($2::bytea[], $3::bigint[]) AS shorter (access_token_hash, end_ms)
    ), shortened AS (
      UPDATE access_tokens t
      SET expires_at_ms = (SELECT end_ms FROM shorter s WHERE s.access_token_hash = t.access_token_hash)
      WHERE access_token_hash = ANY ($2)
    ), minted AS (
      INSERT INTO access_tokens (access_token_hash, grant_id, serial, expires_at_ms)
      SELECT * FROM unnest($4::bytea[], $5::text[], $6::integer[], $7::bigint[])
    ), used AS (
      SELECT * FROM unnest($8::text[], $9::bigint[]) AS used (grant_id, now_ms)
    ), recorded AS (
      UPDATE grants g SET last_used_at_ms = (SELECT max(now_ms) FROM used u WHERE u.grant_id = g.grant_id)
      WHERE grant_id = ANY ($8)
    )
    ${INSERT_EVENTS}
    SELECT event_id, now_ms, 'token.refreshed', actor, '', '', request_id, appid, user_id, grant_id, ''
    FROM unnest($10::text[], $11::bigint[], $12::text[], $13::text[], $14::text[], $15::text[], $16::text[])
      AS refreshed (event_id, now_ms, actor, request_id, appid, user_id, grant_id)`,
}
/** For many at once, by the primary keys of all four tables. */
const findAccessTokens: Statement = {
  name: 'find_access_tokens',
  text: `
    SELECT asked.place, found.*
    FROM unnest($1::bytea[]) WITH ORDINALITY AS asked (hash, place) CROSS JOIN LATERAL (
      SELECT g.grant_id AS "grantId", g.appid, g.user_id AS "userId", g.openid, g.scope, u.external_id AS "externalId",
        u.nickname, u.avatar, t.expires_at_ms AS "expiresAtMs", g.last_used_at_ms AS "grantLastUsedAtMs",
        g.permissions, a.reads_answers AS "appReadsAnswers", g.answers_read_at_ms AS "answersReadAtMs",
        g.revoked_at_ms IS NOT NULL OR a.is_disabled OR u.is_disabled AS "isRevoked"
      FROM access_tokens t
        JOIN grants g ON g.grant_id = t.grant_id
        JOIN apps a ON a.appid = g.appid
        JOIN users u ON u.user_id = g.user_id
      WHERE t.access_token_hash = asked.hash
      OFFSET 0
    ) found`,
}
/** One refresh to carry out. */
interface Refresh {
  readonly minting: Minting
  readonly now: number
  readonly cause: Cause
}

/** A request's app and secret, and its grant; without a grant, `grantId` and what follows are null. */
type LockedGrant = AuthenticationColumns &
  (
    | (Omit<RefreshedGrant, 'tokens'> & Pick<GrantRow, 'grantId' | 'userId' | 'lastUsedAtMs'>)
    | { readonly grantId: null }
  )

interface TokenColumns extends StoredToken {
  readonly grantId: string
  readonly serial: number
}

export function createTokenMethods(database: Database, audit: Audit): TokenMethods {
  const accessTokens = new GroupedReads<AccessTokenRow>(database, findAccessTokens)
  const refreshes = new GroupedWrites(database, refreshSteps(audit))

  return {
    mintAccessToken: (minting, now, cause) =>
      refreshes.submit(byteKey(minting.refreshTokenHash), { minting, now, cause }),

    findAccessToken: async ({ hash }: PresentedToken) => hash && accessTokens.find(hash),
  }
}

function refreshSteps(audit: Audit): Steps<Refresh, MintingResult> {
  return async (transaction, all) => {
    const hashes = all.map(({ minting }) => minting.refreshTokenHash)
    const [locked, stored] = await Promise.all([
      transaction.ask<LockedGrant>(lockGrantsToMint, [
        ...columnsOf(all, [({ minting }) => minting.appid, ({ minting }) => minting.secretId ?? null]),
        hashes,
      ]),
      transaction.ask<TokenColumns>(findTokensOfGrants, [hashes]),
    ])
    // Refreshes of one grant follow each other here too: each is judged by what the one before has left.
    const tokens = new Map<string, readonly StoredToken[]>(groupBy(stored, ({ grantId }) => grantId))
    const minted: (Refresh & { readonly grantId: string; readonly userId: string })[] = []
    const used: { readonly grantId: string; readonly now: number }[] = []
    const results = all.map((each, index): MintingResult => {
      const { minting, now } = each
      const found = locked[index]
      if (!found) throw new TypeError('there is a row for each refresh')
      const grant = found.grantId === null ? undefined : { tokens: tokens.get(found.grantId) ?? [], ...found }
      const terms = termsOf(minting, grant?.grantId ?? '')
      const verdict = judgeRefresh(authenticationOf(found, minting.secretId), grant, terms, now)
      if (!grant || (verdict.kind !== 'minted' && verdict.kind !== 'shared')) {
        return { kind: verdict.kind as 'refused' }
      }
      const { grantId, userId, lastUsedAtMs } = grant
      if (verdict.kind === 'minted') {
        tokens.set(grantId, verdict.tokens)
        minted.push({ grantId, userId, ...each })
      }
      if (now - lastUsedAtMs >= LAST_USE_RESOLUTION_MS) used.push({ grantId, now })
      return { kind: 'good', grantId, expiresAtMs: verdict.expiresAtMs }
    })
    if (minted.length > 0 || used.length > 0) {
      transaction.write(mint, [
        ...changesOf(stored, tokens),
        ...columnsOf(used, [({ grantId }) => grantId, ({ now }) => now]),
        ...columnsOf(minted, [
          ({ now }) => audit.newEventId(now),
          ({ now }) => now,
          ({ cause }) => cause.actor,
          ({ cause }) => cause.requestId,
          ({ minting }) => minting.appid,
          ({ userId }) => userId,
          ({ grantId }) => grantId,
        ]),
      ])
    }
    return results
  }
}

/** What makes the tokens of grants from those that are `stored`, as the first parameters of `mint`. */
function changesOf(stored: readonly TokenColumns[], tokens: ReadonlyMap<string, readonly StoredToken[]>): Value[] {
  const known = new Map(stored.map((token) => [byteKey(token.hash), token]))
  const left = [...tokens].flatMap(([grantId, ofGrant]) => {
    const serial = Math.max(0, ...stored.filter((token) => token.grantId === grantId).map((token) => token.serial))
    return ofGrant.map((token, index) => ({ grantId, serial: serial + ofGrant.length - index, ...token }))
  })
  const kept = new Set(left.map(({ hash }) => byteKey(hash)))
  const isNew = ({ hash }: StoredToken) => !known.has(byteKey(hash))
  const isShorter = ({ hash, expiresAtMs }: StoredToken) =>
    expiresAtMs < (known.get(byteKey(hash))?.expiresAtMs ?? Number.NEGATIVE_INFINITY)
  return [
    stored.filter(({ hash }) => !kept.has(byteKey(hash))).map(({ hash }) => hash),
    ...columnsOf(left.filter(isShorter), [({ hash }) => hash, ({ expiresAtMs }) => expiresAtMs]),
    ...columnsOf(left.filter(isNew), [
      ({ hash }) => hash,
      ({ grantId }) => grantId,
      ({ serial }) => serial,
      ({ expiresAtMs }) => expiresAtMs,
    ]),
  ]
}
