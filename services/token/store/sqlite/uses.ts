import { inParts } from '../../../storage/in-parts.js'
import type { Connection } from '../../../storage/sqlite/open.js'
import { type TokenStore, USES_AT_A_TIME } from '../token-store.js'
import type { KeptTokens } from './kept-tokens.js'

export function useWrites(db: Connection, kept: KeptTokens) {
  const grantUsed = db.prepare<[{ id: string; atMs: number }]>(
    // Index grants_by_id.
    'UPDATE grants SET last_used_at_ms = :atMs WHERE grant_id = :id AND last_used_at_ms < :atMs',
  )
  const secretUsed = db.prepare<[{ id: string; atMs: number }]>(
    // Primary key.
    `UPDATE app_secrets SET last_used_at_ms = :atMs
     WHERE secret_id = :id AND (last_used_at_ms IS NULL OR last_used_at_ms < :atMs)`,
  )

  return {
    recordUses(uses: Parameters<TokenStore['recordUses']>[0]): void {
      for (const [id, atMs] of uses.grants) {
        kept.forgetGrant(id)
        grantUsed.run({ id, atMs })
      }
      for (const [id, atMs] of uses.secrets) secretUsed.run({ id, atMs })
    },
  }
}

/** Splits uses into transactions so small that nobody waits noticeably for one. */
export function fewAtATime(record: TokenStore['recordUses']): TokenStore['recordUses'] {
  const none = new Map<string, number>()
  return async ({ grants, secrets }) => {
    for (const some of inParts([...secrets], USES_AT_A_TIME)) await record({ grants: none, secrets: new Map(some) })
    for (const some of inParts([...grants], USES_AT_A_TIME)) await record({ grants: new Map(some), secrets: none })
  }
}
