import { TOKENS_ONE_BY_ONE } from './grant-row.js'

/**
 * Where the tables of this schema differ from PostgreSQL's: how the rows of its table are selected here, or null for a table
 * that it does without.
 */
export const tokenTablesInPostgres = {
  codes: `
    SELECT code_hash, appid, user_id, coalesce(redirect_uri, '') AS redirect_uri, code_challenge, scope,
      permissions, consent_version, issued_at_ms, code_expires_at_ms AS expires_at_ms, created_at_ms AS used_at_ms, grant_id
    FROM grants`,
  grants: `
    SELECT grant_id, appid, user_id, openid, scope, permissions, consent_version, refresh_token_hash, created_at_ms, last_used_at_ms,
      answers_read_at_ms, expires_at_ms, revoked_at_ms
    FROM grants WHERE created_at_ms IS NOT NULL`,
  access_tokens: TOKENS_ONE_BY_ONE,
  audit_blocks: null,
  clean_ups: null,
  audit_events:
    'SELECT event_id, at_ms, kind, actor, actor_id, actor_source, request_id, appid, user_id, grant_id, note FROM audit_events',
}
