// How requests of AdminService name a user.
import { ErrorReason } from '../../../gen/surveyauth/v1/error_pb.js'
import type { Call } from '../../rpc/dispatcher.js'
import { ServiceError } from '../../rpc/service-error.js'
import type { TokenStore, UserRow } from '../store/token-store.js'
import { notFound } from './apps.js'

/** By one of the three; the others are empty. */
export interface Which {
  readonly username: string
  readonly userId: string
  readonly externalId: string
}

/**
 * The user, who is not deleted. Changes go by the id: a name may be somebody else's by then. A platform's sign-in names the
 * users that it has, and no others.
 * @throws ServiceError INVALID_ARGUMENT, NOT_FOUND
 */
export async function requireUser(store: TokenStore, which: Which, { caller }: Pick<Call, 'caller'>): Promise<UserRow> {
  requireOneName(which)
  if (caller === 'sign_in' && which.externalId === '') {
    throw new ServiceError(ErrorReason.INVALID_ARGUMENT, 'sign_in names users by external_id')
  }
  return found(await findUser(store, which), which)
}

/** @throws ServiceError INVALID_ARGUMENT */
export function requireOneName(which: Which, { orNone = false } = {}): void {
  const given = [which.username, which.userId, which.externalId].filter((name) => name !== '').length
  if (given === 1 || (orNone && given === 0)) return
  throw new ServiceError(ErrorReason.INVALID_ARGUMENT, 'give one of username, user_id and external_id')
}

export function findUser(store: TokenStore, { username, userId, externalId }: Which): Promise<UserRow | undefined> {
  if (userId !== '') return store.findUserById(userId)
  return externalId !== '' ? store.findUserByExternalId(externalId) : store.findUser(username)
}

export function found(user: UserRow | undefined, which: Which): UserRow {
  if (!user) throw noUser(which)
  return user
}

export const noUser = ({ username, userId, externalId }: Which) => notFound('user', username || userId || externalId)
