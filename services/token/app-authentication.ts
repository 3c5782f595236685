// The two questions every app call starts with: is there such an app, and is this its secret.
import { timingSafeEqual } from 'node:crypto'
import { ErrorReason } from '../../gen/surveyauth/v1/error_pb.js'
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

/** The app's live secret that this is, with its use recorded. @throws ServiceError INVALID_SECRET */
export async function requireSecret(deps: TokenDeps, appid: string, secret: string): Promise<AppSecretRow> {
  const secretHash = hashCredential('secret', secret)
  const rows = await deps.store.listAppSecrets(appid)
  const now = deps.now()
  const match = secretHash && rows.filter((row) => isLive(row, now)).find((row) => isSame(row.secretHash, secretHash))
  if (!match) throw invalidSecret()
  deps.uses.secretUsed(match.secretId, now, match.lastUsedAtMs)
  return match
}

/** Neither revoked nor expired. */
function isLive(row: AppSecretRow, now: number): boolean {
  return row.revokedAtMs === undefined && (row.expiresAtMs === undefined || now < row.expiresAtMs)
}

function isSame(a: Uint8Array, b: Uint8Array): boolean {
  return a.length === b.length && timingSafeEqual(a, b)
}
