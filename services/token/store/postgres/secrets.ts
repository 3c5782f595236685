import type { Cause } from '../../../storage/cause.js'
import type { Database, Statement, Transaction } from '../../../storage/postgres/transaction.js'
import { type AppSecretRow, noteOnSecret, type TokenStore } from '../token-store.js'
import type { Audit } from './audit.js'

type SecretMethods = Pick<TokenStore, 'addAppSecret' | 'revokeAppSecret' | 'listAppSecrets'>

const SECRET = `secret_id AS "secretId", appid, name, secret_hash AS "secretHash", created_at_ms AS "createdAtMs",
  expires_at_ms AS "expiresAtMs", revoked_at_ms AS "revokedAtMs", last_used_at_ms AS "lastUsedAtMs", request_id AS "requestId"`

/** Keeps two secrets of one name from being added at once. */
const lockAppOfSecret: Statement = {
  name: 'lock_app_of_secret',
  text: 'SELECT 1 FROM apps WHERE appid = $1 AND NOT is_deleted FOR NO KEY UPDATE',
}
const insertSecret: Statement = {
  name: 'insert_secret',
  text: `
    INSERT INTO app_secrets
      (secret_id, appid, name, secret_hash, created_at_ms, expires_at_ms, revoked_at_ms, last_used_at_ms, request_id)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`,
}
/** By the index app_secrets_by_app. */
const findLiveSecretName: Statement = {
  name: 'find_live_secret_name',
  text: `
    SELECT secret_id AS "secretId" FROM app_secrets
    WHERE appid = $1 AND name = $2 AND revoked_at_ms IS NULL AND (expires_at_ms IS NULL OR expires_at_ms > $3)`,
}
/** By the index app_secrets_by_app. Waits as lockSecret. */
const lockLostSecret: Statement = {
  name: 'lock_lost_secret',
  text: `
    SELECT secret_id AS "secretId", name FROM app_secrets
    WHERE appid = $1 AND request_id = $2 AND revoked_at_ms IS NULL
    FOR NO KEY UPDATE`,
}
const lockSecret: Statement = {
  name: 'lock_secret',
  text: `
    SELECT name, revoked_at_ms AS "revokedAtMs" FROM app_secrets WHERE secret_id = $2 AND appid = $1
    FOR NO KEY UPDATE`,
}
const revokeSecret: Statement = {
  name: 'revoke_secret',
  text: 'UPDATE app_secrets SET revoked_at_ms = $2 WHERE secret_id = $1',
}
/** By the index app_secrets_by_app. */
const listSecrets: Statement = {
  name: 'list_secrets',
  text: `SELECT ${SECRET} FROM app_secrets WHERE appid = $1 ORDER BY created_at_ms, secret_id`,
}

type Nullable<Row, Column extends keyof Row> = Omit<Row, Column> & {
  [Name in Column]: Exclude<Row[Name], undefined> | null
}
type SecretColumns = Nullable<AppSecretRow, 'expiresAtMs' | 'revokedAtMs' | 'lastUsedAtMs' | 'requestId'>

export function createSecretMethods(database: Database, audit: Audit): SecretMethods {
  return {
    addAppSecret(secret, now, cause) {
      return database.causedTransaction(cause, async (transaction) => {
        if (!(await transaction.askOne(lockAppOfSecret, [secret.appid]))) return 'no_app'
        return addSecret(transaction, audit, secret, now, cause)
      })
    },

    revokeAppSecret(appid, secretId, now, cause) {
      return database.causedTransaction(cause, async (transaction) => {
        // Waits for the redemptions and mintings in progress: they hold the row FOR SHARE.
        const secret = await transaction.askOne<{ name: string; revokedAtMs: number | null }>(lockSecret, [
          appid,
          secretId,
        ])
        if (!secret) return 'not_found'
        if (secret.revokedAtMs !== null) return 'already_revoked'
        endSecret(transaction, audit, appid, { secretId, name: secret.name }, now, cause)
        return 'revoked'
      })
    },

    async listAppSecrets(appid) {
      return (await database.read<SecretColumns>(listSecrets, [appid])).map(toSecret)
    },
  }
}

/** As addAppSecret says; the app is locked. */
export async function addSecret(
  transaction: Transaction,
  audit: Audit,
  secret: AppSecretRow,
  now: number,
  cause: Cause,
): Promise<'added' | 'name_taken'> {
  const { appid, name, requestId } = secret
  const lost = requestId === undefined ? undefined : await transaction.askOne<Named>(lockLostSecret, [appid, requestId])
  if (lost) endSecret(transaction, audit, appid, lost, now, cause)
  if (await transaction.askOne(findLiveSecretName, [appid, name, now])) return 'name_taken'
  writeSecret(transaction, secret)
  audit.write(transaction, now, cause, { kind: 'secret.added', appid, note: noteOnSecret(secret) })
  return 'added'
}

type Named = Pick<AppSecretRow, 'secretId' | 'name'>

function endSecret(
  transaction: Transaction,
  audit: Audit,
  appid: string,
  secret: Named,
  now: number,
  cause: Cause,
): void {
  transaction.write(revokeSecret, [secret.secretId, now])
  audit.write(transaction, now, cause, { kind: 'secret.revoked', appid, note: noteOnSecret(secret) })
}

export function writeSecret(transaction: Transaction, secret: AppSecretRow): void {
  transaction.write(insertSecret, [
    secret.secretId,
    secret.appid,
    secret.name,
    secret.secretHash,
    secret.createdAtMs,
    secret.expiresAtMs ?? null,
    secret.revokedAtMs ?? null,
    secret.lastUsedAtMs ?? null,
    secret.requestId ?? null,
  ])
}

function toSecret(columns: SecretColumns): AppSecretRow {
  return {
    ...columns,
    expiresAtMs: columns.expiresAtMs ?? undefined,
    revokedAtMs: columns.revokedAtMs ?? undefined,
    lastUsedAtMs: columns.lastUsedAtMs ?? undefined,
    requestId: columns.requestId ?? undefined,
  }
}
