// The two questions every call of an app starts with: does the app exist, and is this its secret?
import { timingSafeEqual } from 'node:crypto'
import { ErrorReason } from '../../gen/surveyauth/v1/error_pb.js'
import { endOfSecret } from '../protocol/authentication.js'
import { ServiceError } from '../rpc/service-error.js'
import { BoundedMap, byteKey } from '../storage/bounded-map.js'
import { hashCredential } from './credentials.js'
import type { TokenDeps } from './deps.js'
import type { AppRow } from './store/token-store.js'

export const invalidAppid = () => new ServiceError(ErrorReason.INVALID_APPID, 'the appid is unknown or disabled')
export const invalidSecret = () => new ServiceError(ErrorReason.INVALID_SECRET, 'the secret is not one of this app')

/** The enabled app with this id. @throws ServiceError INVALID_APPID */
export async function requireApp(deps: TokenDeps, appid: string): Promise<AppRow> {
  const app = await deps.store.findApp(appid)
  if (!app || app.isDisabled) throw invalidAppid()
  return app
}

/** A secret that an app authenticated with. */
export interface UsedSecret {
  readonly secretId: string
  lastUsedAtMs: number | undefined
}

/** The live secret of an enabled app that `secret` is. @throws ServiceError INVALID_APPID, INVALID_SECRET */
async function findSecret(deps: TokenDeps, appid: string, secret: string): Promise<UsedSecret> {
  await requireApp(deps, appid)
  const secretHash = hashCredential('secret', secret)
  const rows = await deps.store.listAppSecrets(appid)
  const now = deps.now()
  const match =
    secretHash && rows.filter((row) => now < endOfSecret(row)).find((row) => isSame(row.secretHash, secretHash))
  if (!match) throw invalidSecret()
  return { secretId: match.secretId, lastUsedAtMs: match.lastUsedAtMs }
}

export function recordUse(deps: TokenDeps, secret: UsedSecret): void {
  const now = deps.now()
  if (deps.uses.secretUsed(secret.secretId, now, secret.lastUsedAtMs)) secret.lastUsedAtMs = now
}

/** Authenticates an enabled app. @throws ServiceError INVALID_APPID, INVALID_SECRET */
export async function requireSecret(deps: TokenDeps, appid: string, secret: string): Promise<void> {
  recordUse(deps, await findSecret(deps, appid, secret))
}

/**
 * The app's secret that `secret` is, for a transaction that checks app and secret itself: a secret that was good before is not
 * looked up again. The caller records its use once the transaction has found it good.
 * @throws ServiceError INVALID_APPID, INVALID_SECRET
 */
export type RecallSecret = (appid: string, secret: string) => Promise<UsedSecret>

const MAX_RECALLED_BYTES = 16 * 1024 * 1024
const RECALLED_BYTES = 400

export function secretRecaller(deps: TokenDeps): RecallSecret {
  const recalled = new BoundedMap<UsedSecret>(MAX_RECALLED_BYTES)
  return async (appid, secret) => {
    const hash = hashCredential('secret', secret)
    if (!hash) return findSecret(deps, appid, secret)
    const key = byteKey(hash) + appid
    const known = recalled.get(key)
    if (known) return known
    const found = await findSecret(deps, appid, secret)
    recalled.keep(key, found, RECALLED_BYTES)
    return found
  }
}

function isSame(a: Uint8Array, b: Uint8Array): boolean {
  return a.length === b.length && timingSafeEqual(a, b)
}
