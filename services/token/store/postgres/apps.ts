import { cutPage } from '../../../storage/page.js'
import type { Database, Statement } from '../../../storage/postgres/transaction.js'
import { ENDED_AT, IS_NOT_ENDED, MAX_CODE_TTL_MS } from '../ended-codes.js'
import { type AppRow, changedColumns, removedRedirectUris, type TokenStore } from '../token-store.js'
import { setFace } from './app-faces.js'
import type { Audit } from './audit.js'
import { FIRST, listGrants } from './grants.js'
import { addSecret, writeSecret } from './secrets.js'

type AppMethods = Pick<
  TokenStore,
  'createApp' | 'findApp' | 'isAppid' | 'listApps' | 'updateApp' | 'setAppDisabled' | 'deleteApp'
>

const APP = `appid, name, redirect_uris AS "redirectUris", requires_secret_on_refresh AS "requiresSecretOnRefresh",
  requires_pkce AS "requiresPkce", reads_answers AS "readsAnswers", is_disabled AS "isDisabled", created_at_ms AS "createdAtMs"`

const insertApp: Statement = {
  name: 'insert_app',
  text: `
    INSERT INTO apps
      (appid, name, redirect_uris, requires_secret_on_refresh, requires_pkce, reads_answers, is_disabled, created_at_ms)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
    ON CONFLICT (appid) DO NOTHING
    RETURNING appid`,
}
const findApp: Statement = { name: 'find_app', text: `SELECT ${APP} FROM apps WHERE appid = $1 AND NOT is_deleted` }
const findAppid: Statement = { name: 'find_appid', text: 'SELECT 1 FROM apps WHERE appid = $1' }
const listApps: Statement = {
  name: 'list_apps',
  text: `SELECT ${APP} FROM apps WHERE appid > $1 AND NOT is_deleted ORDER BY appid LIMIT $2`,
}
const lockApp: Statement = {
  name: 'lock_app',
  text: `SELECT ${APP} FROM apps WHERE appid = $1 AND NOT is_deleted FOR NO KEY UPDATE`,
}
const updateApp: Statement = {
  name: 'update_app',
  text: `
    UPDATE apps SET name = $2, redirect_uris = $3, requires_secret_on_refresh = $4, requires_pkce = $5, reads_answers = $6
    WHERE appid = $1`,
}
const setAppDisabled: Statement = {
  name: 'set_app_disabled',
  text: 'UPDATE apps SET is_disabled = $2 WHERE appid = $1',
}
const eraseApp: Statement = {
  name: 'erase_app',
  text: 'UPDATE apps SET is_disabled = true, is_deleted = true WHERE appid = $1',
}
const deleteFace: Statement = { name: 'delete_app_face', text: 'DELETE FROM app_faces WHERE appid = $1' }
/** By the index app_secrets_by_app. */
const deleteSecrets: Statement = { name: 'delete_secrets_of_app', text: 'DELETE FROM app_secrets WHERE appid = $1' }
/** As endCodesOfApp. */
const findUnusedCode: Statement = {
  name: 'find_unused_code_of_app',
  text: "SELECT 1 FROM codes WHERE expires_at_ms > $2 AND appid || '' = $1 AND used_at_ms IS NULL LIMIT 1",
}
/**
 * Codes that can still be used, by the index codes_by_expiry: they span a few minutes, whereas all codes of an app may span
 * days. The || '' keeps the planner from the index that begins with the app. Locked in the order in which revocations lock them.
 */
const endCodesOfApp: Statement = {
  name: 'end_codes_of_app',
  text: `
    UPDATE codes SET expires_at_ms = ${ENDED_AT} WHERE code_hash = ANY (ARRAY(
      SELECT code_hash FROM codes WHERE expires_at_ms > $2 AND appid || '' = $1 AND used_at_ms IS NULL
      ORDER BY code_hash FOR UPDATE))`,
}

/** As above; a code of another process may still live by its clock. $2: when the oldest code that may live was issued. */
const endCodesOfRedirectUris: Statement = {
  name: 'end_codes_of_redirect_uris',
  text: `
    UPDATE codes SET expires_at_ms = ${ENDED_AT} WHERE code_hash = ANY (ARRAY(
      SELECT code_hash FROM codes
      WHERE expires_at_ms > $2 AND issued_at_ms > $2 AND appid || '' = $1 AND redirect_uri = ANY ($3::text[])
        AND used_at_ms IS NULL AND ${IS_NOT_ENDED}
      ORDER BY code_hash FOR UPDATE))`,
}

const rulesOf = ({ redirectUris, requiresSecretOnRefresh, requiresPkce, readsAnswers }: AppRow) => [
  redirectUris,
  requiresSecretOnRefresh,
  requiresPkce,
  readsAnswers,
]

export function createAppMethods(database: Database, audit: Audit): AppMethods {
  return {
    createApp({ face, ...app }, secret, cause) {
      return database.causedTransaction(cause, async (transaction) => {
        const { appid, name, isDisabled, createdAtMs } = app
        const values = [appid, name, ...rulesOf(app), isDisabled, createdAtMs]
        const created = await transaction.write(insertApp, values)
        if (created.length === 0) {
          const before = await transaction.askOne<AppRow>(lockApp, [appid])
          if (!before) return undefined // it was deleted
          const added = await addSecret(transaction, audit, secret, secret.createdAtMs, cause)
          return added === 'added' ? before : undefined
        }
        if (face) await setFace(transaction, appid, face)
        writeSecret(transaction, secret)
        audit.write(transaction, createdAtMs, cause, { kind: 'app.created', appid, note: name })
        return app
      })
    },

    findApp: (appid) => database.readOne<AppRow>(findApp, [appid]),

    async isAppid(appid) {
      return (await database.read(findAppid, [appid])).length > 0
    },

    async listApps({ limit, after = '' }) {
      return cutPage(await database.read<AppRow>(listApps, [after, limit + 1]), limit, (app) => app.appid)
    },

    updateApp(appid, { face, ...change }, now, cause) {
      return database.causedTransaction(cause, async (transaction) => {
        const before = await transaction.askOne<AppRow>(lockApp, [appid]) // waits as below
        if (!before) return undefined
        const app = { ...before, ...change }
        const changed = [...changedColumns(before, app), ...(face ? await setFace(transaction, appid, face) : [])]
        if (changed.length === 0) return before
        transaction.write(updateApp, [appid, app.name, ...rulesOf(app)])
        const removed = removedRedirectUris(before, app)
        if (removed.length > 0) transaction.write(endCodesOfRedirectUris, [appid, now - MAX_CODE_TTL_MS, removed])
        audit.write(transaction, now, cause, { kind: 'app.updated', appid, note: changed.join(', ') })
        return app
      })
    },

    setAppDisabled(appid, isDisabled, now, cause) {
      return database.causedTransaction(cause, async (transaction) => {
        // Waits for the redemptions and mintings in progress: they hold the row FOR SHARE.
        const before = await transaction.askOne<AppRow>(lockApp, [appid])
        if (!before || before.isDisabled === isDisabled) return before
        transaction.write(setAppDisabled, [appid, isDisabled])
        if (isDisabled) transaction.write(endCodesOfApp, [appid, now])
        audit.write(transaction, now, cause, { kind: isDisabled ? 'app.disabled' : 'app.enabled', appid })
        return { ...before, isDisabled }
      })
    },

    deleteApp(appid, now, cause) {
      return database.causedTransaction(cause, async (transaction) => {
        const app = await transaction.askOne<AppRow>(lockApp, [appid]) // waits as above, and nothing is issued meanwhile
        if (!app) return 'not_found'
        if (await transaction.askOne(listGrants(true, false, true), [FIRST.atMs, FIRST.id, 1, appid, now]))
          return 'has_grants'
        if (await transaction.askOne(findUnusedCode, [appid, now])) return 'has_codes'
        transaction.write(eraseApp, [appid])
        transaction.write(deleteFace, [appid])
        transaction.write(deleteSecrets, [appid])
        audit.write(transaction, now, cause, { kind: 'app.deleted', appid, note: app.name })
        return 'deleted'
      })
    },
  }
}
