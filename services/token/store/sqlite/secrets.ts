import { type Authentication, endOfSecret } from '../../../protocol/authentication.js'
import type { Cause } from '../../../storage/cause.js'
import type { Connection } from '../../../storage/sqlite/open.js'
import { type AppSecretRow, noteOnSecret, type Revocation } from '../token-store.js'
import type { RecordEvent } from './audit.js'

/** AppSecretRow with null instead of undefined. */
interface SecretRecord extends Omit<AppSecretRow, 'expiresAtMs' | 'revokedAtMs' | 'lastUsedAtMs' | 'requestId'> {
  readonly expiresAtMs: number | null
  readonly revokedAtMs: number | null
  readonly lastUsedAtMs: number | null
  readonly requestId: string | null
}

export function secretReads(db: Connection) {
  const list = db.prepare<[string], SecretRecord>(
    // Index app_secrets_by_app.
    `SELECT secret_id AS secretId, appid, name, secret_hash AS secretHash, created_at_ms AS createdAtMs,
       expires_at_ms AS expiresAtMs, revoked_at_ms AS revokedAtMs, last_used_at_ms AS lastUsedAtMs,
       request_id AS requestId
     FROM app_secrets WHERE appid = ? ORDER BY created_at_ms, secret_id`,
  )
  return { listAppSecrets: (appid: string) => list.all(appid).map(toSecret) }
}

/** What the transaction in progress finds of an app and the secret it authenticated with; undefined when it sent none. */
export type FindAuthentication = (appid: string, secretId: string | undefined) => Authentication

/** Columns of the lookup below, in its order. */
type AuthenticationRecord = [
  isDisabled: number,
  requiresSecretOnRefresh: number,
  secretId: string | null,
  expiresAtMs: number | null,
  revokedAtMs: number | null,
]

export function authenticationFinder(db: Connection): FindAuthentication {
  const find = db
    .prepare<[secretId: string, appid: string], AuthenticationRecord>(
      // Primary keys of both tables.
      `SELECT a.is_disabled, a.requires_secret_on_refresh, s.secret_id, s.expires_at_ms, s.revoked_at_ms
       FROM apps a LEFT JOIN app_secrets s ON s.secret_id = +? AND s.appid = a.appid WHERE a.appid = +?`,
    )
    .raw()

  return (appid, secretId) => {
    const found = find.get(secretId ?? '', appid)
    if (!found) return { app: undefined, secretEndsAtMs: undefined }
    const [isDisabled, requiresSecretOnRefresh, knownId, expiresAtMs, revokedAtMs] = found
    const secret = { expiresAtMs: expiresAtMs ?? undefined, revokedAtMs: revokedAtMs ?? undefined }
    return {
      app: { isDisabled: isDisabled === 1, requiresSecretOnRefresh: requiresSecretOnRefresh === 1 },
      secretEndsAtMs: secretId === undefined ? undefined : knownId === null ? 0 : endOfSecret(secret),
    }
  }
}

export function secretInserter(db: Connection): (secret: AppSecretRow) => void {
  const insert = db.prepare<[SecretRecord]>(
    `INSERT INTO app_secrets
       (secret_id, appid, name, secret_hash, created_at_ms, expires_at_ms, revoked_at_ms, last_used_at_ms, request_id)
     VALUES (:secretId, :appid, :name, :secretHash, :createdAtMs, :expiresAtMs, :revokedAtMs, :lastUsedAtMs,
       :requestId)`,
  )
  return (secret) => {
    insert.run(toRecord(secret))
  }
}

export function secretWrites(db: Connection, record: RecordEvent, insertSecret: (secret: AppSecretRow) => void) {
  const findApp = db.prepare<[string], 1>(
    // Primary key.
    'SELECT 1 FROM apps WHERE appid = ? AND is_deleted = 0',
  )
  const findLiveName = db.prepare<[{ appid: string; name: string; now: number }], 1>(
    // Index app_secrets_by_app; an app has a handful.
    `SELECT 1 FROM app_secrets
     WHERE appid = :appid AND name = :name AND revoked_at_ms IS NULL
       AND (expires_at_ms IS NULL OR expires_at_ms > :now)`,
  )
  const find = db.prepare<[string], { appid: string; name: string; revokedAtMs: number | null }>(
    // Primary key.
    'SELECT appid, name, revoked_at_ms AS revokedAtMs FROM app_secrets WHERE secret_id = ?',
  )
  const revoke = db.prepare<[number, string]>(
    // Primary key.
    'UPDATE app_secrets SET revoked_at_ms = ? WHERE secret_id = ?',
  )

  const findLost = db.prepare<[string, string], { secretId: string; name: string }>(
    // Index app_secrets_by_app.
    `SELECT secret_id AS secretId, name FROM app_secrets
     WHERE appid = ? AND request_id = ? AND revoked_at_ms IS NULL`,
  )

  function end(appid: string, secret: { secretId: string; name: string }, now: number, cause: Cause): void {
    revoke.run(now, secret.secretId)
    record({ kind: 'secret.revoked', now, cause, appid, note: noteOnSecret(secret) })
  }

  return {
    addAppSecret(secret: AppSecretRow, now: number, cause: Cause): 'added' | 'no_app' | 'name_taken' {
      const { appid, name, requestId } = secret
      if (!findApp.get(appid)) return 'no_app'
      const lost = requestId === undefined ? undefined : findLost.get(appid, requestId)
      if (lost) end(appid, lost, now, cause)
      if (findLiveName.get({ appid, name, now })) return 'name_taken'
      insertSecret(secret)
      record({ kind: 'secret.added', now, cause, appid, note: noteOnSecret(secret) })
      return 'added'
    },

    revokeAppSecret(appid: string, secretId: string, now: number, cause: Cause): Revocation {
      const secret = find.get(secretId)
      if (secret?.appid !== appid) return 'not_found'
      if (secret.revokedAtMs !== null) return 'already_revoked'
      end(appid, { secretId, name: secret.name }, now, cause)
      return 'revoked'
    },
  }
}

function toSecret(record: SecretRecord): AppSecretRow {
  return {
    ...record,
    expiresAtMs: record.expiresAtMs ?? undefined,
    revokedAtMs: record.revokedAtMs ?? undefined,
    lastUsedAtMs: record.lastUsedAtMs ?? undefined,
    requestId: record.requestId ?? undefined,
  }
}

function toRecord(secret: AppSecretRow): SecretRecord {
  return {
    ...secret,
    expiresAtMs: secret.expiresAtMs ?? null,
    revokedAtMs: secret.revokedAtMs ?? null,
    lastUsedAtMs: secret.lastUsedAtMs ?? null,
    requestId: secret.requestId ?? null,
  }
}
