import type { Cause } from '../../../storage/cause.js'
import { cutPage, type Page, type PageOf } from '../../../storage/page.js'
import type { Connection } from '../../../storage/sqlite/open.js'
import {
  type AppDeletion,
  type AppRow,
  type AppSecretRow,
  changedColumns,
  type NewApp,
  removedRedirectUris,
  type TokenStore,
} from '../token-store.js'
import { appFaceSetter } from './app-faces.js'
import type { RecordEvent } from './audit.js'

interface AppRecord {
  readonly appid: string
  readonly name: string
  readonly redirect_uris: string
  readonly requires_secret_on_refresh: number
  readonly requires_pkce: number
  readonly reads_answers: number
  readonly is_disabled: number
  readonly created_at_ms: number
}

const COLUMNS =
  'appid, name, redirect_uris, requires_secret_on_refresh, requires_pkce, reads_answers, is_disabled, created_at_ms'

/** The app as the database has it. */
export function appFinder(db: Connection): (appid: string) => AppRow | undefined {
  const find = db.prepare<[string], AppRecord>(
    // Primary key.
    `SELECT ${COLUMNS} FROM apps WHERE appid = ? AND is_deleted = 0`,
  )
  return (appid) => {
    const record = find.get(appid)
    return record && toApp(record)
  }
}

export function appReads(db: Connection) {
  const list = db.prepare<[string, number], AppRecord>(
    // Primary key.
    `SELECT ${COLUMNS} FROM apps WHERE appid > ? AND is_deleted = 0 ORDER BY appid LIMIT ?`,
  )
  const findAppid = db.prepare<[string], 1>(
    // Primary key.
    'SELECT 1 FROM apps WHERE appid = ?',
  )
  return {
    findApp: appFinder(db),
    isAppid: (appid: string) => findAppid.get(appid) !== undefined,
    listApps(page: PageOf): Page<AppRow> {
      const rows = list.all(page.after ?? '', page.limit + 1).map(toApp)
      return cutPage(rows, page.limit, (row) => row.appid)
    },
  }
}

export function appWrites(
  db: Connection,
  record: RecordEvent,
  insertSecret: (secret: AppSecretRow) => void,
  addAppSecret: (secret: AppSecretRow, now: number, cause: Cause) => 'added' | 'no_app' | 'name_taken',
  endUnusedCodes: {
    ofApp(of: { readonly appid: string; readonly now: number }): void
    ofRedirectUri(of: { readonly appid: string; readonly redirectUri: string; readonly now: number }): void
  },
  hasLiveGrant: (of: { readonly appid: string; readonly liveAtMs: number }) => boolean,
  hasUnusedCode: (of: { readonly appid: string; readonly now: number }) => boolean,
) {
  const findApp = appFinder(db)
  const setFace = appFaceSetter(db)
  const insert = db.prepare<[AppRecord]>(
    `INSERT INTO apps (${COLUMNS})
     VALUES (:appid, :name, :redirect_uris, :requires_secret_on_refresh, :requires_pkce, :reads_answers, :is_disabled,
       :created_at_ms)
     ON CONFLICT (appid) DO NOTHING`,
  )
  const update = db.prepare<[AppRecord]>(
    // Primary key.
    `UPDATE apps SET name = :name, redirect_uris = :redirect_uris,
       requires_secret_on_refresh = :requires_secret_on_refresh, requires_pkce = :requires_pkce,
       reads_answers = :reads_answers, is_disabled = :is_disabled
     WHERE appid = :appid`,
  )

  const erase = db.prepare<[string]>(
    // Primary key.
    'UPDATE apps SET is_disabled = 1, is_deleted = 1 WHERE appid = ?',
  )
  const removeFace = db.prepare<[string]>(
    // Primary key.
    'DELETE FROM app_faces WHERE appid = ?',
  )
  const removeSecrets = db.prepare<[string]>(
    // Index app_secrets_by_app.
    'DELETE FROM app_secrets WHERE appid = ?',
  )

  return {
    createApp({ face, ...app }: NewApp, secret: AppSecretRow, cause: Cause): AppRow | undefined {
      const before = findApp(app.appid)
      if (before) return addAppSecret(secret, secret.createdAtMs, cause) === 'added' ? before : undefined
      if (insert.run(toRecord(app)).changes === 0) return undefined // it was deleted
      if (face) setFace(app.appid, face)
      insertSecret(secret)
      record({ kind: 'app.created', now: app.createdAtMs, cause, appid: app.appid, note: app.name })
      return app
    },

    updateApp(
      appid: string,
      { face, ...change }: Parameters<TokenStore['updateApp']>[1],
      now: number,
      cause: Cause,
    ): AppRow | undefined {
      const before = findApp(appid)
      if (!before) return undefined
      const after = { ...before, ...change }
      const changed = [...changedColumns(before, after), ...(face ? setFace(appid, face) : [])]
      if (changed.length === 0) return before
      update.run(toRecord(after))
      for (const redirectUri of removedRedirectUris(before, after))
        endUnusedCodes.ofRedirectUri({ appid, redirectUri, now })
      record({ kind: 'app.updated', now, cause, appid, note: changed.join(', ') })
      return after
    },

    setAppDisabled(appid: string, isDisabled: boolean, now: number, cause: Cause): AppRow | undefined {
      const before = findApp(appid)
      if (!before || before.isDisabled === isDisabled) return before
      const after = { ...before, isDisabled }
      update.run(toRecord(after))
      if (isDisabled) endUnusedCodes.ofApp({ appid, now })
      record({ kind: isDisabled ? 'app.disabled' : 'app.enabled', now, cause, appid })
      return after
    },

    deleteApp(appid: string, now: number, cause: Cause): AppDeletion {
      const app = findApp(appid)
      if (!app) return 'not_found'
      if (hasLiveGrant({ appid, liveAtMs: now })) return 'has_grants'
      if (hasUnusedCode({ appid, now })) return 'has_codes'
      erase.run(appid)
      removeFace.run(appid)
      removeSecrets.run(appid)
      record({ kind: 'app.deleted', now, cause, appid, note: app.name })
      return 'deleted'
    },
  }
}

function toApp(record: AppRecord): AppRow {
  return {
    appid: record.appid,
    name: record.name,
    redirectUris: JSON.parse(record.redirect_uris) as string[], // written by toRecord
    requiresSecretOnRefresh: record.requires_secret_on_refresh === 1,
    requiresPkce: record.requires_pkce === 1,
    readsAnswers: record.reads_answers === 1,
    isDisabled: record.is_disabled === 1,
    createdAtMs: record.created_at_ms,
  }
}

function toRecord(app: AppRow): AppRecord {
  return {
    appid: app.appid,
    name: app.name,
    redirect_uris: JSON.stringify(app.redirectUris),
    requires_secret_on_refresh: Number(app.requiresSecretOnRefresh),
    requires_pkce: Number(app.requiresPkce),
    reads_answers: Number(app.readsAnswers),
    is_disabled: Number(app.isDisabled),
    created_at_ms: app.createdAtMs,
  }
}
