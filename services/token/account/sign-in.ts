import type { MessageInitShape } from '@bufbuild/protobuf'
import { timestampFromMs } from '@bufbuild/protobuf/wkt'
import type { SignInRequest, SignInResponseSchema } from '../../../gen/surveyauth/v1/account_service_pb.js'
import { ErrorReason } from '../../../gen/surveyauth/v1/error_pb.js'
import type { Call } from '../../rpc/dispatcher.js'
import { ServiceError } from '../../rpc/service-error.js'
import { hashCredential, newCredential } from '../credentials.js'
import type { TokenDeps } from '../deps.js'

/** One answer in one time for unknown user, disabled user and wrong password. */
export function signIn(deps: TokenDeps) {
  return async (request: SignInRequest, call: Call): Promise<MessageInitShape<typeof SignInResponseSchema>> => {
    const { username, password, source } = request
    const attempt = await deps.signInLimiter.admit(username, source)
    const user = await deps.store.findUser(username)
    const isRight = await deps.passwords.verify(user?.passwordHash, password)

    const session = newCredential('session', deps.randomBytes)
    const now = deps.now()
    const expiresAtMs = now + deps.rules.sessionTtlSeconds * 1000
    const isStarted =
      user !== undefined &&
      isRight &&
      (await deps.store.startSession(
        {
          sessionHash: session.hash,
          userId: user.userId,
          passwordHash: user.passwordHash,
          expiresAtMs,
          previousSessionHash: hashCredential('session', request.previousSessionToken),
          maxLive: deps.rules.maxSessionsPerUser,
        },
        now,
        { actor: 'user', requestId: call.requestId },
      )) === 'started'
    if (!isStarted) throw new ServiceError(ErrorReason.INVALID_CREDENTIALS, 'username or password is wrong')
    await attempt.succeeded()
    return { sessionToken: session.text, expireTime: timestampFromMs(expiresAtMs) }
  }
}
