// What `store copy` needs to know of the stores, beyond what their schemas say.
import type { CopiedSchema } from '../../services/copy/copy-stores.js'
import { surveySchema as surveyPostgres } from '../../services/survey/store/postgres/schema.js'
import { surveySchema as surveySqlite } from '../../services/survey/store/sqlite/schema.js'
import { tokenSchema as tokenPostgres } from '../../services/token/store/postgres/schema.js'
import { tokenSchema as tokenSqlite } from '../../services/token/store/sqlite/schema.js'

export const tokenCopy: CopiedSchema = {
  sqlite: tokenSqlite,
  postgres: tokenPostgres,
  tablesInPostgres: {
    grants: {
      select: `
        SELECT grant_id, appid, user_id, openid, scope, refresh_token_hash, created_at_ms, last_used_at_ms,
          expires_at_ms, revoked_at_ms
        FROM grants`,
      key: ['grant_id'],
    },
    access_tokens: {
      select: `
        WITH RECURSIVE token (at) AS (
          SELECT 0 UNION ALL SELECT at + 38 FROM token WHERE at < (SELECT max(length(access_tokens)) FROM grants))
        SELECT substr(access_tokens, at + 1, 32) AS access_token_hash, grant_id,
          (length(access_tokens) - at) / 38 AS serial,
          ('0x' || hex(substr(access_tokens, at + 33, 6))) ->> '$' AS expires_at_ms
        FROM grants, token WHERE at < length(access_tokens)`,
      key: ['access_token_hash'],
    },
    access_tokens_of_0_1_0: null,
    audit_blocks: null,
    audit_events: {
      select: 'SELECT event_id, at_ms, kind, actor, request_id, appid, user_id, grant_id, note FROM audit_events',
      key: ['event_id'],
    },
  },
  notCopied: { request_counts: 'rates of the last minutes, which on SQLite are only in memory' },
  afterwards: [],
}

export const surveyCopy: CopiedSchema = {
  sqlite: surveySqlite,
  postgres: surveyPostgres,
  tablesInPostgres: {},
  notCopied: { survey_ids: 'the highest survey_id, which SQLite reads from the surveys' },
  afterwards: [
    'UPDATE survey_ids SET highest_id = greatest(highest_id, (SELECT coalesce(max(survey_id), 0) FROM surveys))',
  ],
}
