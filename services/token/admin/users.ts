// Users of the built-in accounts, as operators see them.
import type { MessageInitShape } from '@bufbuild/protobuf'
import { timestampFromMs } from '@bufbuild/protobuf/wkt'
import type { AdminService, UserSchema } from '../../../gen/surveyauth/v1/admin_service_pb.js'
import { ErrorReason } from '../../../gen/surveyauth/v1/error_pb.js'
import type { Handlers } from '../../rpc/dispatcher.js'
import { ServiceError } from '../../rpc/service-error.js'
import { pageOf } from '../../storage/page.js'
import { idOfRequest } from '../credentials.js'
import type { TokenDeps } from '../deps.js'
import type { TokenStore, UserRow } from '../store/token-store.js'
import { byOperator, notFound } from './apps.js'

type UserMethods = Pick<
  Handlers<typeof AdminService>,
  'createUser' | 'listUsers' | 'getUser' | 'updateUser' | 'setUserDisabled' | 'setUserPassword' | 'deleteUser'
>

/** As the proto demands it of CreateUser. */
const USERNAME = /^[A-Za-z0-9._@+-]{1,64}$/

export function createUserMethods(deps: TokenDeps): UserMethods {
  const { store } = deps

  return {
    async createUser({ username, password, nickname, avatar, requestId }, call) {
      const user: UserRow = {
        userId: idOfRequest('user', requestId, deps.randomBytes),
        username,
        nickname,
        avatar,
        passwordHash: await deps.passwords.hash(password),
        isDisabled: false,
        createdAtMs: deps.now(),
      }
      if ((await store.createUser(user, byOperator(call))) === 'username_taken') {
        const made = requestId === '' ? undefined : await store.findUserById(user.userId)
        if (made?.username === username) return { user: toUser(made) } // by this call, which is repeated
        throw new ServiceError(ErrorReason.ALREADY_EXISTS, 'there is a user of this name')
      }
      return { user: toUser(user) }
    },

    async listUsers(request) {
      const { rows, next } = await store.listUsers(pageOf(request, USERNAME))
      return { users: rows.map(toUser), nextPageToken: next ?? '' }
    },

    async getUser(request) {
      return { user: toUser(await requireUser(store, request)) }
    },

    async updateUser({ nickname, avatar, ...which }, call) {
      const { userId } = await requireUser(store, which)
      const change = { ...(nickname !== undefined && { nickname }), ...(avatar !== undefined && { avatar }) }
      const user = await store.updateUser(userId, change, deps.now(), byOperator(call))
      return { user: toUser(found(user, which)) }
    },

    async setUserDisabled({ disabled, ...which }, call) {
      const { userId } = await requireUser(store, which)
      const user = await store.setUserDisabled(userId, disabled, deps.now(), byOperator(call))
      return { user: toUser(found(user, which)) }
    },

    async setUserPassword({ password, ...which }, call) {
      const { userId } = await requireUser(store, which)
      const passwordHash = await deps.passwords.hash(password)
      const isSet = await store.setUserPassword(userId, passwordHash, deps.now(), byOperator(call))
      if (!isSet) throw noUser(which)
      return {}
    },

    async deleteUser(which, call) {
      const { userId } = await requireUser(store, which)
      const outcome = await store.deleteUser(userId, deps.now(), byOperator(call))
      if (outcome === 'not_found') throw noUser(which)
      if (outcome === 'not_disabled') {
        throw new ServiceError(ErrorReason.INVALID_ARGUMENT, 'only a disabled user is deleted: disable the user first')
      }
      return {}
    },
  }
}

/** How a request names a user: by one of the two. */
interface Which {
  readonly username: string
  readonly userId: string
}

/** The user, who is not deleted. Changes go by the id: a name may be somebody else's by then. */
async function requireUser(store: TokenStore, which: Which): Promise<UserRow> {
  const { username, userId } = which
  if ((username === '') === (userId === '')) {
    throw new ServiceError(ErrorReason.INVALID_ARGUMENT, 'give username or user_id, and not both')
  }
  return found(userId === '' ? await store.findUser(username) : await store.findUserById(userId), which)
}

function found(user: UserRow | undefined, which: Which): UserRow {
  if (!user) throw noUser(which)
  return user
}

const noUser = ({ username, userId }: Which) => notFound('user', username || userId)

function toUser(row: UserRow): MessageInitShape<typeof UserSchema> {
  return {
    userId: row.userId,
    username: row.username,
    nickname: row.nickname,
    avatar: row.avatar,
    disabled: row.isDisabled,
    createTime: timestampFromMs(row.createdAtMs),
  }
}
