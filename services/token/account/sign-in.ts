import type { MessageInitShape } from '@bufbuild/protobuf'
import { timestampFromMs } from '@bufbuild/protobuf/wkt'
import type { SignInRequest, SignInResponseSchema } from '../../../gen/surveyauth/v1/account_service_pb.js'
import { ErrorReason } from '../../../gen/surveyauth/v1/error_pb.js'
import type { Call } from '../../rpc/dispatcher.js'
import { ServiceError } from '../../rpc/service-error.js'
import { causedBy } from '../../storage/cause.js'
import { hashCredential, newCredential } from '../credentials.js'
import type { TokenDeps } from '../deps.js'
import { comparisonsOf, type Hashing } from '../password/hasher.js'
import type { UserRow } from '../store/token-store.js'

/** Unknown user, disabled user, user without a password and wrong password get the same answer after the same time. */
export function signIn(deps: TokenDeps) {
  return (request: SignInRequest, call: Call): Promise<MessageInitShape<typeof SignInResponseSchema>> =>
    byPassword(deps, request, call, async (user, hashing) => {
      const isOwn = deps.passwords.isOwn(user.passwordHash)
      const newPasswordHash = isOwn ? undefined : await hashing.hash(request.password)
      return startSession(deps, { ...user, newPasswordHash }, request, call)
    })
}

/**
 * What `then` makes of the user whose name and password these are; undefined if they have changed meanwhile.
 * @throws ServiceError INVALID_CREDENTIALS, RATE_LIMITED
 */
export async function byPassword<T>(
  deps: TokenDeps,
  { username, password, source }: Pick<SignInRequest, 'username' | 'password' | 'source'>,
  { deadlineMs: dueAt, signal }: Call,
  then: (user: UserRow, hashing: Hashing) => Promise<T | undefined>,
): Promise<T> {
  if (!deps.signInMethods.password)
    throw new ServiceError(ErrorReason.INVALID_ARGUMENT, 'nobody signs in by password here')
  const timed = { source, comparisons: comparisonsOf(password), dueAt, signal }
  const answer = await deps.timeFloor.kept(timed, () =>
    deps.passwords.inQueue((hashing) =>
      deps.signInLimiter.counted(username, source, async () => {
        const user = await deps.store.findUser(username)
        const isRight = await hashing.compare(user?.passwordHash || undefined, password)
        return user && isRight ? then(user, hashing) : undefined
      }),
    ),
  )
  if (answer === undefined) throw new ServiceError(ErrorReason.INVALID_CREDENTIALS, 'username or password is wrong')
  return answer
}

/** undefined when the user has been disabled or given another password meanwhile. */
async function startSession(
  deps: TokenDeps,
  user: UserRow & { readonly newPasswordHash: string | undefined },
  { previousSessionToken, browser }: SignInRequest,
  call: Call,
): Promise<MessageInitShape<typeof SignInResponseSchema> | undefined> {
  const { userId, passwordHash, newPasswordHash } = user
  const session = newCredential('session', deps.randomBytes)
  const now = deps.now()
  const expiresAtMs = now + deps.rules.sessionTtlSeconds * 1000
  const previousSessionHash = hashCredential('session', previousSessionToken)
  const { maxSessionsPerUser: maxLive } = deps.rules
  const result = await deps.store.startSession(
    {
      sessionHash: session.hash,
      userId,
      passwordHash,
      newPasswordHash,
      browser,
      expiresAtMs,
      previousSessionHash,
      maxLive,
    },
    now,
    causedBy('user', call),
  )
  return result === 'started' ? { sessionToken: session.text, expireTime: timestampFromMs(expiresAtMs) } : undefined
}
