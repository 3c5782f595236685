// The locks that redemptions, mintings and code issues take first. Rows are always locked in the order app, secret, user,
// code, openid, grant: a revocation waits for those who hold its row, or is seen by them, and nobody waits in a circle.
import type { Statement } from '../../../postgres/transaction.js'

export const shareApp: Statement = {
  name: 'share_app',
  text: 'SELECT is_disabled AS "isDisabled" FROM apps WHERE appid = $1 FOR SHARE',
}

/**
 * The beginning of a statement that goes on with more queries: keeps app and secret as they are until the transaction
 * ends, and `credentials` says what is wrong with them, if anything. What follows locks nothing before it has asked that.
 * $1: appid, $2: secretId, null when the app sent none, which is good if it may; $3: now.
 */
export const WITH_CREDENTIALS = `
    WITH app AS (
      SELECT NOT is_disabled AS is_live, requires_secret_on_refresh FROM apps WHERE appid = $1
      FOR SHARE
    ), secret AS (
      SELECT revoked_at_ms IS NULL AND (expires_at_ms IS NULL OR expires_at_ms > $3) AS is_live FROM app_secrets
      WHERE secret_id = $2 AND appid = $1 AND (SELECT is_live FROM app)
      FOR SHARE
    ), credentials AS (
      SELECT CASE
        WHEN (SELECT is_live FROM app) IS NOT TRUE THEN 'app_ended'
        WHEN (SELECT is_live FROM secret) IS NOT TRUE
          AND ($2::text IS NOT NULL OR (SELECT requires_secret_on_refresh FROM app)) THEN 'secret_ended'
      END AS ended
    )`

/** What `credentials` says. */
export type Ended = 'app_ended' | 'secret_ended' | null
