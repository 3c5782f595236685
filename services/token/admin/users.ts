// Users of the built-in accounts, as operators see them.
import type { MessageInitShape } from '@bufbuild/protobuf'
import { timestampFromMs } from '@bufbuild/protobuf/wkt'
import type { AdminService, IdentitySchema, UserSchema } from '../../../gen/surveyauth/v1/admin_service_pb.js'
import { ErrorReason } from '../../../gen/surveyauth/v1/error_pb.js'
import type { Handlers } from '../../rpc/dispatcher.js'
import { ServiceError } from '../../rpc/service-error.js'
import { pageOf } from '../../storage/page.js'
import { connectedApps } from '../connected-apps.js'
import { idOfRequest } from '../credentials.js'
import type { TokenDeps } from '../deps.js'
import { type IdentityRow, placeholderName, type UserRow } from '../store/token-store.js'
import { byOperator, notFound, wasDeleted } from './apps.js'
import { found, noUser, requireUser } from './which-user.js'

type UserMethods = Pick<
  Handlers<typeof AdminService>,
  | 'createUser'
  | 'listUsers'
  | 'getUser'
  | 'updateUser'
  | 'setUserDisabled'
  | 'setUserPassword'
  | 'deleteUser'
  | 'endUserSessions'
  | 'listUserApps'
  | 'disconnectUserApp'
  | 'linkIdentity'
  | 'unlinkIdentity'
  | 'listIdentities'
>

/** As the proto demands it of CreateUser, or a placeholder. */
const USERNAME = /^~?[A-Za-z0-9._@+-]{1,64}$/

export function createUserMethods(deps: TokenDeps): UserMethods {
  const { store } = deps

  return {
    async createUser({ username, password, externalId, nickname, avatar, requestId }, call) {
      if (password !== undefined && username === '') {
        throw new ServiceError(ErrorReason.INVALID_ARGUMENT, 'a password needs a username to sign in with')
      }
      const userId = idOfRequest('user', requestId, deps.randomBytes)
      if ((await store.isUserId(userId)) && !(await store.findUserById(userId))) throw wasDeleted('user')
      const user: UserRow = {
        userId,
        username: username || placeholderName(userId),
        externalId,
        nickname,
        avatar,
        passwordHash: password === undefined ? '' : await deps.passwords.hash(password),
        isDisabled: false,
        createdAtMs: deps.now(),
      }
      const outcome = await store.createUser(user, byOperator(call))
      if (outcome === 'created') return { user: toUser(user) }
      const made = requestId === '' ? undefined : await store.findUserById(userId)
      if (made?.username === user.username) return { user: toUser(made) } // by this call, which is repeated
      if (outcome === 'external_id_taken') throw externalIdTaken()
      throw new ServiceError(ErrorReason.ALREADY_EXISTS, 'there is a user of this name')
    },

    async listUsers(request) {
      const { rows, next } = await store.listUsers(pageOf(request, USERNAME))
      return { users: rows.map(toUser), nextPageToken: next ?? '' }
    },

    async getUser(request, call) {
      return { user: toUser(await requireUser(store, request, call)) }
    },

    async updateUser({ nickname, avatar, newExternalId: externalId, ...which }, call) {
      const { userId } = await requireUser(store, which, call)
      const change = {
        ...(externalId !== undefined && { externalId }),
        ...(nickname !== undefined && { nickname }),
        ...(avatar !== undefined && { avatar }),
      }
      const user = await store.updateUser(userId, change, deps.now(), byOperator(call))
      if (user === 'external_id_taken') throw externalIdTaken()
      return { user: toUser(found(user, which)) }
    },

    async setUserDisabled({ disabled, ...which }, call) {
      const { userId } = await requireUser(store, which, call)
      const user = await store.setUserDisabled(userId, disabled, deps.now(), byOperator(call))
      return { user: toUser(found(user, which)) }
    },

    async setUserPassword({ password, ...which }, call) {
      const { userId } = await requireUser(store, which, call)
      const passwordHash = await deps.passwords.hash(password)
      const isSet = await store.setUserPassword(userId, passwordHash, deps.now(), byOperator(call))
      if (!isSet) throw noUser(which)
      return {}
    },

    async deleteUser(which, call) {
      const { userId } = await requireUser(store, which, call)
      const outcome = await store.deleteUser(userId, deps.now(), byOperator(call))
      if (outcome === 'not_found') throw noUser(which)
      if (outcome === 'not_disabled') {
        throw new ServiceError(ErrorReason.INVALID_ARGUMENT, 'only a disabled user is deleted: disable the user first')
      }
      return {}
    },

    async endUserSessions(which, call) {
      const { userId } = await requireUser(store, which, call)
      return { sessions: await store.endSessions({ userId }, deps.now(), byOperator(call)) }
    },

    async listUserApps(which, call) {
      const { userId } = await requireUser(store, which, call)
      return { apps: await connectedApps(deps, userId) }
    },

    async disconnectUserApp({ appid, ...which }, call) {
      const { userId } = await requireUser(store, which, call)
      const [newest] = (await store.listGrants({ userId, appid }, { limit: 1, after: undefined })).rows // of ended ones too
      if (!newest) throw notFound('grant of this user to the app', appid)
      await store.disconnectApp(newest.grantId, userId, deps.now(), byOperator(call))
      return {}
    },

    async linkIdentity({ provider, subject, ...which }, call) {
      const { userId } = await requireUser(store, which, call)
      const outcome = await store.linkIdentity({ provider, subject }, userId, deps.now(), byOperator(call))
      if (outcome === 'not_found') throw noUser(which)
      if (outcome === 'taken') throw new ServiceError(ErrorReason.ALREADY_EXISTS, "the identity is another user's")
      return {}
    },

    async unlinkIdentity({ provider, subject }, call) {
      const userId = await store.unlinkIdentity({ provider, subject }, deps.now(), byOperator(call))
      if (userId === undefined) throw notFound('identity', `${provider} ${subject}`)
      return { userId }
    },

    async listIdentities(which, call) {
      const { userId } = await requireUser(store, which, call)
      return { identities: (await store.listIdentities(userId)).map(toIdentity) }
    },
  }
}

const externalIdTaken = () => new ServiceError(ErrorReason.ALREADY_EXISTS, 'there is a user with this external_id')

function toUser(row: UserRow): MessageInitShape<typeof UserSchema> {
  return {
    userId: row.userId,
    username: row.username,
    externalId: row.externalId,
    nickname: row.nickname,
    avatar: row.avatar,
    hasPassword: row.passwordHash !== '',
    disabled: row.isDisabled,
    createTime: timestampFromMs(row.createdAtMs),
  }
}

function toIdentity(row: IdentityRow): MessageInitShape<typeof IdentitySchema> {
  return {
    provider: row.provider,
    subject: row.subject,
    createTime: timestampFromMs(row.createdAtMs),
    ...(row.lastUsedAtMs > 0 && { lastUseTime: timestampFromMs(row.lastUsedAtMs) }),
  }
}
