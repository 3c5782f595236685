import { TOKENS_ONE_BY_ONE } from './packed-tokens.js'

/**
 * Where the tables of this schema are not those of PostgreSQL: how its rows are selected here and what its key is, or null
 * for a table it does without.
 */
export const tokenTablesInPostgres = {
  grants: {
    select: `
      SELECT grant_id, appid, user_id, openid, scope, refresh_token_hash, created_at_ms, last_used_at_ms,
        expires_at_ms, revoked_at_ms
      FROM grants`,
    key: ['grant_id'],
  },
  access_tokens: { select: TOKENS_ONE_BY_ONE, key: ['access_token_hash'] },
  access_tokens_of_0_1_0: null,
  audit_blocks: null,
  audit_events: {
    select: 'SELECT event_id, at_ms, kind, actor, request_id, appid, user_id, grant_id, note FROM audit_events',
    key: ['event_id'],
  },
}
