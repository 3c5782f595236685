// The locks that redemptions, mintings and code issues take first. Rows are always locked in the order app, secret, user,
// code, openid, grant: a revocation waits for those who hold its row, or is seen by them, and nobody waits in a circle.
import type { Statement, Transaction } from '../../../postgres/transaction.js'

const shareApp: Statement = {
  name: 'share_app',
  text: 'SELECT is_disabled AS "isDisabled" FROM apps WHERE appid = $1 FOR SHARE',
}
const shareSecret: Statement = {
  name: 'share_secret',
  text: `
    SELECT revoked_at_ms IS NULL AND (expires_at_ms IS NULL OR expires_at_ms > $3) AS "isLive"
    FROM app_secrets WHERE secret_id = $2 AND appid = $1
    FOR SHARE`,
}

/** Keeps app and secret as they are until the transaction ends, and says what is wrong with them, if anything. */
export async function lockCredentials(
  transaction: Transaction,
  appid: string,
  secretId: string | undefined,
  now: number,
): Promise<'app_ended' | 'secret_ended' | undefined> {
  const [app, secret] = await Promise.all([
    transaction.askOne<{ isDisabled: boolean }>(shareApp, [appid]),
    secretId !== undefined && transaction.askOne<{ isLive: boolean }>(shareSecret, [appid, secretId, now]),
  ])
  if (!app || app.isDisabled) return 'app_ended'
  if (secret !== false && !secret?.isLive) return 'secret_ended'
  return undefined
}
