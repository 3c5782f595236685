// What writes must know about an app and its secrets, read inside the transaction that relies on it.
import type { Authentication } from '../../../protocol/authentication.js'
import type { Connection } from '../../../storage/sqlite/open.js'
import type { AppState, KeptRows } from './kept-rows.js'

/** The app as the transaction in progress sees it. */
export type FindAppState = (appid: string) => AppState | undefined

export function appStateFinder(db: Connection, kept: KeptRows): FindAppState {
  const findApp = db.prepare<[string], { isDisabled: number; requiresSecretOnRefresh: number }>(
    // Primary key.
    `SELECT is_disabled AS isDisabled, requires_secret_on_refresh AS requiresSecretOnRefresh
     FROM apps WHERE appid = ?`,
  )
  const listSecrets = db.prepare<[string], { secretId: string; expiresAtMs: number | null }>(
    // Index app_secrets_by_app.
    `SELECT secret_id AS secretId, expires_at_ms AS expiresAtMs
     FROM app_secrets WHERE appid = ? AND revoked_at_ms IS NULL`,
  )

  function look(appid: string): AppState | undefined {
    const app = findApp.get(appid)
    if (!app) return undefined
    const secrets = listSecrets.all(appid)
    return {
      isDisabled: app.isDisabled === 1,
      requiresSecretOnRefresh: app.requiresSecretOnRefresh === 1,
      secretEnds: new Map(secrets.map(({ secretId, expiresAtMs }) => [secretId, expiresAtMs ?? Infinity])),
    }
  }

  return (appid) => kept.appState(appid, look)
}

/** What the transaction in progress finds of an app and the secret it authenticated with; undefined when it sent none. */
export type FindAuthentication = (appid: string, secretId: string | undefined) => Authentication

export function authenticationFinder(findState: FindAppState): FindAuthentication {
  return (appid, secretId) => {
    const app = findState(appid)
    return { app, secretEndsAtMs: secretId === undefined ? undefined : (app?.secretEnds.get(secretId) ?? 0) }
  }
}
