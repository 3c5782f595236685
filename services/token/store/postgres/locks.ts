// The locks that redemptions, mintings and the issuing of codes take first. Rows are always locked in the order app, secret,
// user, session, code, openid, grant, which avoids deadlocks; only a sign-in may end a session of another user, whom it does not
// lock, in the same browser. A revocation either waits for the holders of its row or is seen by them.

import type { Authentication } from '../../../protocol/authentication.js'
import type { Statement } from '../../../storage/postgres/transaction.js'

const FOREVER = Number.MAX_SAFE_INTEGER

export const shareApp: Statement = {
  name: 'share_app',
  text: 'SELECT is_disabled AS "isDisabled", redirect_uris AS "redirectUris" FROM apps WHERE appid = $1 FOR SHARE',
}

/**
 * The user, if not disabled and still with the password that was checked before. Behind this lock the sessions and codes of one
 * user are counted one transaction at a time, so that the caps hold.
 */
export const lockUnchangedUser: Statement = {
  name: 'lock_unchanged_user',
  text: `
    SELECT user_id FROM users WHERE user_id = $1 AND password_hash = $2 AND NOT is_disabled
    FOR NO KEY UPDATE`,
}

/** The user of the session, locked likewise, if not disabled; then the session, which cannot end before the transaction does. */
export const lockUserAndSession: Statement = {
  name: 'lock_user_and_session',
  text: `
    SELECT u.user_id FROM users u JOIN sessions s ON s.user_id = u.user_id
    WHERE u.user_id = $1 AND s.session_hash = $2 AND NOT u.is_disabled
    FOR NO KEY UPDATE OF u FOR KEY SHARE OF s`,
}

/**
 * Continues `WITH asked AS (…), `, whose rows have an appid, a secret_id (null when the app sent none) and a place. Locks apps and
 * secrets until the transaction ends; `authentication` is `asked` with what is known of them.
 */
export const AUTHENTICATION_OF_ASKED = `
    app AS MATERIALIZED (
      SELECT appid, is_disabled, requires_secret_on_refresh FROM apps
      WHERE appid = ANY (ARRAY(SELECT appid FROM asked))
      FOR SHARE
    ), secret AS MATERIALIZED (
      SELECT secret_id, appid, CASE WHEN revoked_at_ms IS NULL THEN coalesce(expires_at_ms, ${FOREVER}) ELSE 0 END AS end_ms
      FROM app_secrets
      WHERE secret_id = ANY (ARRAY(SELECT secret_id FROM asked)) AND appid = ANY (ARRAY(SELECT appid FROM app))
      FOR SHARE
    ), authentication AS MATERIALIZED (
      SELECT asked.*, app.is_disabled, app.requires_secret_on_refresh, coalesce(secret.end_ms, 0) AS secret_end_ms
      FROM asked
        LEFT JOIN app ON app.appid = asked.appid
        LEFT JOIN secret ON secret.secret_id = asked.secret_id AND secret.appid = asked.appid
    )`

/** The columns of `authentication a`. */
export const AUTHENTICATION = `a.is_disabled AS "isAppDisabled",
      a.requires_secret_on_refresh AS "requiresSecretOnRefresh", a.secret_end_ms AS "secretEndsAtMs"`

/** The first two are null when there is no such app. */
export interface AuthenticationColumns {
  readonly isAppDisabled: boolean | null
  readonly requiresSecretOnRefresh: boolean | null
  readonly secretEndsAtMs: number
}

export function authenticationOf(columns: AuthenticationColumns, secretId: string | undefined): Authentication {
  const { isAppDisabled, requiresSecretOnRefresh, secretEndsAtMs } = columns
  return {
    app:
      isAppDisabled === null
        ? undefined
        : { isDisabled: isAppDisabled, requiresSecretOnRefresh: requiresSecretOnRefresh === true },
    secretEndsAtMs: secretId === undefined ? undefined : secretEndsAtMs,
  }
}

/** The user of the row of `table`, locked before that row. */
export const lockedUserOf = (table: string) => `
        CROSS JOIN LATERAL (
          SELECT is_disabled FROM users WHERE user_id = ${table}.user_id
          FOR SHARE
        ) u`
