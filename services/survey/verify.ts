import { Code, ConnectError } from '@connectrpc/connect'
import { ErrorReason } from '../../gen/surveyauth/v1/error_pb.js'
import { Permission, type VerifyAccessTokenResponse } from '../../gen/surveyauth/v1/token_service_pb.js'
import { headersBecauseOf } from '../rpc/client.js'
import type { Call } from '../rpc/dispatcher.js'
import { reasonIn, ServiceError } from '../rpc/service-error.js'
import type { ReadDeps } from './deps.js'

interface Presented {
  readonly appid: string
  readonly accessToken: string
  readonly openid: string
}

/** What TokenService says about the credentials is passed on unchanged; a failure to reach it becomes UNAVAILABLE. */
const passedOn: ReadonlySet<ErrorReason> = new Set([
  ErrorReason.INVALID_ARGUMENT,
  ErrorReason.INVALID_APPID,
  ErrorReason.INVALID_TOKEN,
  ErrorReason.CLAIM_ERROR,
  ErrorReason.ANSWERS_NOT_GRANTED,
])

const unreachable: ReadonlySet<Code> = new Set([
  Code.Unavailable,
  Code.DeadlineExceeded,
  Code.Canceled,
  Code.ResourceExhausted,
])

/**
 * Whose token it is, and that it permits this, according to TokenService.
 * @throws ServiceError INVALID_APPID, INVALID_TOKEN, CLAIM_ERROR, ANSWERS_NOT_GRANTED, UNAVAILABLE
 */
export async function verify(
  deps: Pick<ReadDeps, 'token'>,
  presented: Presented,
  call: Call,
  permission = Permission.UNSPECIFIED,
): Promise<VerifyAccessTokenResponse> {
  const { appid, accessToken, openid } = presented
  try {
    return await deps.token.verifyAccessToken(
      { $typeName: 'surveyauth.v1.VerifyAccessTokenRequest', appid, accessToken, openid, permission },
      { headers: headersBecauseOf(call) },
    )
  } catch (error) {
    throw translate(error)
  }
}

function translate(error: unknown): unknown {
  if (!(error instanceof ConnectError)) return error
  const reason = reasonIn(error)
  if (reason !== undefined && passedOn.has(reason)) return new ServiceError(reason, error.rawMessage)
  if (unreachable.has(error.code)) {
    return new ServiceError(ErrorReason.UNAVAILABLE, 'the token service is unavailable', {
      retryAfterSeconds: 1,
      cause: error,
    })
  }
  return new Error('the token service failed', { cause: error })
}
