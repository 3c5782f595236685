import type { GetAuthorizedUserRequest, GetAuthorizedUserResponse } from '../../gen/surveyauth/v1/token_service_pb.js'
import type { TokenDeps } from './deps.js'
import { requireAccessToken } from './require-access-token.js'

/** The basic profile (spec 4.4). */
export function getAuthorizedUser(deps: TokenDeps) {
  return async (request: GetAuthorizedUserRequest): Promise<GetAuthorizedUserResponse> => {
    const { openid, nickname, avatar, externalId } = await requireAccessToken(deps, request)
    return { $typeName: 'surveyauth.v1.GetAuthorizedUserResponse', openid, nickname, avatar, externalId }
  }
}
