// The two questions every app call starts with: is there such an app, and is this its secret.
import { timingSafeEqual } from 'node:crypto'
import { ErrorReason } from '../../gen/surveyauth/v1/error_pb.js'
import { BoundedMap } from '../rpc/bounded-map.js'
import { ServiceError } from '../rpc/service-error.js'
import { hashCredential } from './credentials.js'
import type { TokenDeps } from './deps.js'
import type { AppRow, AppSecretRow } from './store/token-store.js'

export const invalidAppid = () => new ServiceError(ErrorReason.INVALID_APPID, 'the appid is unknown or disabled')
export const invalidSecret = () => new ServiceError(ErrorReason.INVALID_SECRET, 'the secret is not one of this app')

/** The enabled app of this id. @throws ServiceError INVALID_APPID */
export async function requireApp(deps: TokenDeps, appid: string): Promise<AppRow> {
  const app = await deps.store.findApp(appid)
  if (!app || app.isDisabled) throw invalidAppid()
  return app
}

/** The live secret of an enabled app that this is. @throws ServiceError INVALID_APPID, INVALID_SECRET */
export async function requireSecret(deps: TokenDeps, appid: string, secret: string): Promise<AppSecretRow> {
  await requireApp(deps, appid)
  const secretHash = hashCredential('secret', secret)
  const rows = await deps.store.listAppSecrets(appid)
  const now = deps.now()
  const match = secretHash && rows.filter((row) => isLive(row, now)).find((row) => isSame(row.secretHash, secretHash))
  if (!match) throw invalidSecret()
  return match
}

/**
 * The id of the app's secret that this is, with its use recorded, for a transaction that checks app and secret: what was
 * good before is not looked for again. @throws ServiceError INVALID_APPID, INVALID_SECRET
 */
export type RecallSecret = (appid: string, secret: string) => Promise<string>

const MAX_RECALLED_BYTES = 16 * 1024 * 1024
const RECALLED_BYTES = 400

export function secretRecaller(deps: TokenDeps): RecallSecret {
  const recalled = new BoundedMap<{ readonly secretId: string; lastUsedAtMs: number | undefined }>(MAX_RECALLED_BYTES)
  return async (appid, secret) => {
    const hash = hashCredential('secret', secret)
    const key = hash && `${Buffer.from(hash).toString('latin1')}${appid}`
    let found = key === undefined ? undefined : recalled.get(key)
    if (!found) {
      const { secretId, lastUsedAtMs } = await requireSecret(deps, appid, secret)
      found = { secretId, lastUsedAtMs }
      if (key !== undefined) recalled.keep(key, found, RECALLED_BYTES)
    }
    const now = deps.now()
    if (deps.uses.secretUsed(found.secretId, now, found.lastUsedAtMs)) found.lastUsedAtMs = now
    return found.secretId
  }
}

/** Neither revoked nor expired. */
function isLive(row: AppSecretRow, now: number): boolean {
  return row.revokedAtMs === undefined && (row.expiresAtMs === undefined || now < row.expiresAtMs)
}

function isSame(a: Uint8Array, b: Uint8Array): boolean {
  return a.length === b.length && timingSafeEqual(a, b)
}
