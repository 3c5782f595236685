// Apps and their secrets, as operators see them.
import type { MessageInitShape } from '@bufbuild/protobuf'
import { timestampFromMs, timestampMs } from '@bufbuild/protobuf/wkt'
import type { AdminService, AppSchema, AppSecretSchema } from '../../../gen/surveyauth/v1/admin_service_pb.js'
import { ErrorReason } from '../../../gen/surveyauth/v1/error_pb.js'
import type { Call, Handlers } from '../../rpc/dispatcher.js'
import { ServiceError } from '../../rpc/service-error.js'
import { type Cause, causedBy } from '../../storage/cause.js'
import { pageOf } from '../../storage/page.js'
import { idForm, idOfRequest, isLikeCredential, newCredential, newId } from '../credentials.js'
import type { TokenDeps } from '../deps.js'
import type { AppDeletion, AppFace, AppRow, AppSecretRow, NewApp } from '../store/token-store.js'
import { toFaceChange } from './app-face.js'
import { requireRegistrable } from './redirect-uri.js'

type AppMethods = Pick<
  Handlers<typeof AdminService>,
  | 'createApp'
  | 'listApps'
  | 'getApp'
  | 'updateApp'
  | 'setAppDisabled'
  | 'deleteApp'
  | 'addAppSecret'
  | 'revokeAppSecret'
>

const APPID = idForm('app')

/** Name of the secret an app is created with. */
const FIRST_SECRET = 'default'

export function createAppMethods(deps: TokenDeps): AppMethods {
  const { store } = deps
  const withFace = async (row: AppRow, secrets: readonly AppSecretRow[] = []) =>
    toApp(row, await store.findAppFace(row.appid), secrets)

  return {
    async createApp(request, call) {
      const redirectUris = requireRegistrableAll(request.redirectUris)
      const now = deps.now()
      const app: NewApp = {
        appid: idOfRequest('app', request.requestId, deps.randomBytes),
        name: request.name,
        redirectUris,
        requiresSecretOnRefresh: request.requiresSecretOnRefresh,
        requiresPkce: request.requiresPkce,
        readsAnswers: request.readsAnswers,
        isDisabled: false,
        createdAtMs: now,
        face: toFaceChange(request.face),
      }
      const { appid } = app
      const { requestId } = request
      const { row, secret } = newSecret(deps, { appid, name: FIRST_SECRET, now, expiresAtMs: undefined, requestId })
      const created = await store.createApp(app, row, byOperator(call))
      if (!created) throw (await store.findApp(appid)) ? nameTaken() : wasDeleted('app')
      return { app: await withFace(created), secret, secretId: row.secretId }
    },

    async listApps(request) {
      const { rows, next } = await store.listApps(pageOf(request, APPID))
      return { apps: await Promise.all(rows.map((row) => withFace(row))), nextPageToken: next ?? '' }
    },

    async getApp({ appid }) {
      const app = found(await store.findApp(appid), appid)
      return { app: await withFace(app, await store.listAppSecrets(appid)) }
    },

    async updateApp(request, call) {
      const registered = (await store.findApp(request.appid))?.redirectUris
      const change = {
        ...(request.name !== undefined && { name: request.name }),
        ...(request.redirectUris.length > 0 && {
          redirectUris: requireRegistrableAll(request.redirectUris, registered),
        }),
        ...(request.requiresSecretOnRefresh !== undefined && {
          requiresSecretOnRefresh: request.requiresSecretOnRefresh,
        }),
        ...(request.requiresPkce !== undefined && { requiresPkce: request.requiresPkce }),
        ...(request.readsAnswers !== undefined && { readsAnswers: request.readsAnswers }),
        face: toFaceChange(request.face),
      }
      const app = await store.updateApp(request.appid, change, deps.now(), byOperator(call))
      return { app: await withFace(found(app, request.appid)) }
    },

    async setAppDisabled({ appid, disabled }, call) {
      const app = await store.setAppDisabled(appid, disabled, deps.now(), byOperator(call))
      return { app: await withFace(found(app, appid)) }
    },

    async deleteApp({ appid }, call) {
      const outcome = await store.deleteApp(appid, deps.now(), byOperator(call))
      if (outcome === 'not_found') throw notFound('app', appid)
      if (outcome !== 'deleted') throw new ServiceError(ErrorReason.INVALID_ARGUMENT, REFERENCES[outcome])
      return {}
    },

    async addAppSecret({ appid, name, expireTime, requestId }, call) {
      const now = deps.now()
      const expiresAtMs = expireTime && timestampMs(expireTime)
      if (expiresAtMs !== undefined && expiresAtMs <= now) {
        throw new ServiceError(ErrorReason.INVALID_ARGUMENT, 'expire_time must be in the future')
      }
      const { row, secret } = newSecret(deps, { appid, name, now, expiresAtMs, requestId })
      const outcome = await store.addAppSecret(row, now, byOperator(call))
      if (outcome === 'no_app') throw notFound('app', appid)
      if (outcome === 'name_taken') {
        throw nameTaken()
      }
      return { secretId: row.secretId, secret }
    },

    async revokeAppSecret({ appid, secretId }, call) {
      const outcome = await store.revokeAppSecret(appid, secretId, deps.now(), byOperator(call))
      if (outcome === 'not_found') throw notFound('secret', secretId)
      return { alreadyRevoked: outcome === 'already_revoked' }
    },
  }
}

/** What keeps an app from being deleted. */
const REFERENCES: Readonly<Record<Exclude<AppDeletion, 'deleted' | 'not_found'>, string>> = {
  has_grants: 'the app has live grants',
  has_codes: 'the app has a code that can still be exchanged',
}

/** Of a platform's own users, the platform's server is one too. */
export const byOperator = (call: Call): Cause => causedBy(call.caller === 'sign_in' ? 'sign_in' : 'operator', call)

/** `name`: the name or id that was asked for; the message repeats it unless it looks like a credential. */
export function notFound(what: string, name: string): ServiceError {
  const named = isLikeCredential(name) ? '' : `: ${name}`
  return new ServiceError(ErrorReason.NOT_FOUND, `there is no such ${what}${named}`)
}

const nameTaken = () => new ServiceError(ErrorReason.ALREADY_EXISTS, 'the app has a live secret of this name')

/** Of a creation that is repeated: an id is never given again. */
export const wasDeleted = (what: 'app' | 'user') =>
  new ServiceError(ErrorReason.ALREADY_EXISTS, `the ${what} that this request_id has made was deleted`)

function found(app: AppRow | undefined, appid: string): AppRow {
  if (!app) throw notFound('app', appid)
  return app
}

/** URIs that are already registered may stay: later rules must not break an app that works. */
function requireRegistrableAll(redirectUris: readonly string[], registered: readonly string[] = []): string[] {
  for (const redirectUri of redirectUris) {
    if (!registered.includes(redirectUri)) requireRegistrable(redirectUri)
  }
  return [...new Set(redirectUris)]
}

function newSecret(
  deps: TokenDeps,
  about: { appid: string; name: string; now: number; expiresAtMs: number | undefined; requestId: string },
): { row: AppSecretRow; secret: string } {
  const credential = newCredential('secret', deps.randomBytes)
  const row: AppSecretRow = {
    secretId: newId('secret', deps.randomBytes),
    appid: about.appid,
    name: about.name,
    secretHash: credential.hash,
    createdAtMs: about.now,
    expiresAtMs: about.expiresAtMs,
    revokedAtMs: undefined,
    lastUsedAtMs: undefined,
    requestId: about.requestId || undefined,
  }
  return { row, secret: credential.text }
}

function toApp(row: AppRow, face: AppFace, secrets: readonly AppSecretRow[]): MessageInitShape<typeof AppSchema> {
  return {
    appid: row.appid,
    name: row.name,
    redirectUris: [...row.redirectUris],
    disabled: row.isDisabled,
    requiresSecretOnRefresh: row.requiresSecretOnRefresh,
    requiresPkce: row.requiresPkce,
    readsAnswers: row.readsAnswers,
    face,
    createTime: timestampFromMs(row.createdAtMs),
    secrets: secrets.map(toAppSecret),
  }
}

function toAppSecret(row: AppSecretRow): MessageInitShape<typeof AppSecretSchema> {
  return {
    secretId: row.secretId,
    name: row.name,
    createTime: timestampFromMs(row.createdAtMs),
    ...(row.expiresAtMs !== undefined && { expireTime: timestampFromMs(row.expiresAtMs) }),
    ...(row.revokedAtMs !== undefined && { revokeTime: timestampFromMs(row.revokedAtMs) }),
    ...(row.lastUsedAtMs !== undefined && { lastUseTime: timestampFromMs(row.lastUsedAtMs) }),
  }
}
