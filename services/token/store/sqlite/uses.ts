import { inParts } from '../../../storage/in-parts.js'
import type { Connection } from '../../../storage/sqlite/open.js'
import { type TokenStore, USES_AT_A_TIME } from '../token-store.js'
import type { KeptTokens } from './kept-tokens.js'

export function useWrites(db: Connection, kept: KeptTokens) {
  const grantUsed = db.prepare<[{ id: string; atMs: number }]>(
    // Index grants_by_id.
    'UPDATE grants SET last_used_at_ms = :atMs WHERE grant_id = :id AND last_used_at_ms < :atMs',
  )
  const answersRead = db.prepare<[{ id: string; atMs: number }]>(
    // Index grants_by_id.
    'UPDATE grants SET answers_read_at_ms = :atMs WHERE grant_id = :id AND answers_read_at_ms < :atMs',
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
      for (const [id, atMs] of uses.answers) {
        kept.forgetGrant(id)
        answersRead.run({ id, atMs })
      }
      for (const [id, atMs] of uses.secrets) secretUsed.run({ id, atMs })
    },
  }
}

/** Splits uses into transactions so small that nobody waits noticeably for one. */
export function fewAtATime(record: TokenStore['recordUses']): TokenStore['recordUses'] {
  const none = { grants: new Map(), answers: new Map(), secrets: new Map() }
  return async (uses) => {
    for (const kind of ['secrets', 'answers', 'grants'] as const)
      for (const some of inParts([...uses[kind]], USES_AT_A_TIME)) await record({ ...none, [kind]: new Map(some) })
  }
}
