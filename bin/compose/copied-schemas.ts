// What `store copy` needs to know about the stores, beyond what their schemas say.
import type { CopiedSchema } from '../../services/storage/copy/copy-stores.js'
import { surveySchema as surveyPostgres } from '../../services/survey/store/postgres/schema.js'
import { surveySchema as surveySqlite } from '../../services/survey/store/sqlite/schema.js'
import { NEW_IDS_END } from '../../services/survey/store/survey-store.js'
import { tokenSchema as tokenPostgres } from '../../services/token/store/postgres/schema.js'
import { tokenSchema as tokenSqlite } from '../../services/token/store/sqlite/schema.js'
import { tokenTablesInPostgres } from '../../services/token/store/sqlite/tables-in-postgres.js'

export const tokenCopy: CopiedSchema = {
  sqlite: tokenSqlite,
  postgres: tokenPostgres,
  tablesInPostgres: tokenTablesInPostgres,
  notCopied: {
    request_counts: 'rates of the last minutes, which on SQLite are only in memory',
    token_clean_ups: 'the first clean-up there',
  },
  afterwards: [],
}

export const surveyCopy: CopiedSchema = {
  sqlite: surveySqlite,
  postgres: surveyPostgres,
  tablesInPostgres: { clean_ups: null },
  notCopied: {
    survey_ids: 'the highest survey_id, which SQLite reads from the surveys',
    survey_clean_ups: 'the first clean-up there',
  },
  afterwards: [
    `UPDATE survey_ids SET highest_id = greatest(highest_id,
       (SELECT coalesce(max(survey_id), 0) FROM surveys WHERE survey_id < ${NEW_IDS_END}))`,
    `SELECT setval(pg_get_serial_sequence('answer_sets', 'set_id'), (SELECT coalesce(max(set_id), 0) + 1 FROM answer_sets), false)`,
  ],
}
