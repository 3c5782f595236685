import { inParts } from '../../../storage/in-parts.js'
import type { Database, Statement } from '../../../storage/postgres/transaction.js'
import { type TokenStore, USES_AT_A_TIME } from '../token-store.js'

const lockGrants: Statement = {
  name: 'lock_grants',
  text: 'SELECT 1 FROM grants WHERE grant_id = ANY ($1::text[]) ORDER BY grant_id FOR NO KEY UPDATE',
}
const recordGrantUses: Statement = {
  name: 'record_grant_uses',
  text: `
    UPDATE grants SET last_used_at_ms = used.at_ms
    FROM unnest($1::text[], $2::bigint[]) AS used (grant_id, at_ms)
    WHERE grants.grant_id = used.grant_id AND grants.last_used_at_ms < used.at_ms`,
}
const recordAnswersRead: Statement = {
  name: 'record_answers_read',
  text: `
    UPDATE grants SET answers_read_at_ms = used.at_ms
    FROM unnest($1::text[], $2::bigint[]) AS used (grant_id, at_ms)
    WHERE grants.grant_id = used.grant_id AND grants.answers_read_at_ms < used.at_ms`,
}
const lockSecrets: Statement = {
  name: 'lock_secrets',
  text: 'SELECT 1 FROM app_secrets WHERE secret_id = ANY ($1::text[]) ORDER BY secret_id FOR NO KEY UPDATE',
}
const recordSecretUses: Statement = {
  name: 'record_secret_uses',
  text: `
    UPDATE app_secrets SET last_used_at_ms = used.at_ms
    FROM unnest($1::text[], $2::bigint[]) AS used (secret_id, at_ms)
    WHERE app_secrets.secret_id = used.secret_id
      AND (app_secrets.last_used_at_ms IS NULL OR app_secrets.last_used_at_ms < used.at_ms)`,
}

export function createUseMethods(database: Database): Pick<TokenStore, 'recordUses'> {
  /** Locks rows in the order of their ids, so that two processes cannot deadlock. */
  async function recordAll(uses: ReadonlyMap<string, number>, lock: Statement, record: Statement): Promise<void> {
    for (const some of inParts([...uses], USES_AT_A_TIME)) {
      const ids = some.map(([id]) => id)
      const times = some.map(([, atMs]) => atMs)
      await database.transaction(async (transaction) => {
        await transaction.ask(lock, [ids])
        transaction.write(record, [ids, times])
      })
    }
  }

  return {
    async recordUses({ grants, answers, secrets }) {
      await recordAll(secrets, lockSecrets, recordSecretUses)
      await recordAll(answers, lockGrants, recordAnswersRead)
      await recordAll(grants, lockGrants, recordGrantUses)
    },
  }
}
