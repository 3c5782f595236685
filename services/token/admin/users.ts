// Users of the built-in accounts, as operators see them.
import type { MessageInitShape } from '@bufbuild/protobuf'
import { timestampFromMs } from '@bufbuild/protobuf/wkt'
import type { AdminService, UserSchema } from '../../../gen/surveyauth/v1/admin_service_pb.js'
import { ErrorReason } from '../../../gen/surveyauth/v1/error_pb.js'
import type { Handlers } from '../../rpc/dispatcher.js'
import { ServiceError } from '../../rpc/service-error.js'
import { pageOf } from '../../store/page.js'
import { newId } from '../credentials.js'
import type { TokenDeps } from '../deps.js'
import type { UserRow } from '../store/token-store.js'
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
    async createUser({ username, password, nickname, avatar }, call) {
      const user: UserRow = {
        userId: newId('user', deps.randomBytes),
        username,
        nickname,
        avatar,
        passwordHash: await deps.passwords.hash(password),
        isDisabled: false,
        createdAtMs: deps.now(),
      }
      if ((await store.createUser(user, byOperator(call))) === 'username_taken') {
        throw new ServiceError(ErrorReason.ALREADY_EXISTS, 'there is a user of this name')
      }
      return { user: toUser(user) }
    },

    async listUsers(request) {
      const { rows, next } = await store.listUsers(pageOf(request, USERNAME))
      return { users: rows.map(toUser), nextPageToken: next ?? '' }
    },

    async getUser({ username }) {
      return { user: toUser(found(await store.findUser(username), username)) }
    },

    async updateUser({ username, nickname, avatar }, call) {
      const change = { ...(nickname !== undefined && { nickname }), ...(avatar !== undefined && { avatar }) }
      const user = await store.updateUser(username, change, deps.now(), byOperator(call))
      return { user: toUser(found(user, username)) }
    },

    async setUserDisabled({ username, disabled }, call) {
      const user = await store.setUserDisabled(username, disabled, deps.now(), byOperator(call))
      return { user: toUser(found(user, username)) }
    },

    async setUserPassword({ username, password }, call) {
      const passwordHash = await deps.passwords.hash(password)
      const isSet = await store.setUserPassword(username, passwordHash, deps.now(), byOperator(call))
      if (!isSet) throw notFound('user', username)
      return {}
    },

    async deleteUser({ username }, call) {
      const outcome = await store.deleteUser(username, deps.now(), byOperator(call))
      if (outcome === 'not_found') throw notFound('user', username)
      if (outcome === 'not_disabled') {
        throw new ServiceError(ErrorReason.INVALID_ARGUMENT, 'only a disabled user is deleted: disable the user first')
      }
      return {}
    },
  }
}

function found(user: UserRow | undefined, username: string): UserRow {
  if (!user) throw notFound('user', username)
  return user
}

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
