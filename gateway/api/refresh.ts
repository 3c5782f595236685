import { success } from '../answer.js'
import { Problem } from '../errors.js'
import type { Route } from '../http.js'
import { MAX_ID_LENGTH, MAX_SECRET_LENGTH, MAX_WORD_LENGTH } from '../query.js'

/** Mints a new access token (spec 4.3, 2.4). A `secret` is checked if sent (decisions 13). */
export const refreshTokenRoute: Route = {
  name: 'refresh_token',
  method: 'GET',
  path: '/api/oauth2/refresh_token',
  kind: 'api',
  async answer(request, { token }) {
    const query = request.query()
    const grantType = query.required('grant_type', MAX_WORD_LENGTH) // first: a request for another grant type has others
    if (grantType !== 'refresh_token') throw new Problem('invalid_grant_type', 'grant_type must be refresh_token')
    const appid = query.required('appid', MAX_ID_LENGTH)
    const refreshToken = query.credential('refresh_token')
    const secret = query.optional('secret', MAX_SECRET_LENGTH)

    const refreshed = await token.refreshAccessToken(
      { $typeName: 'surveyauth.v1.RefreshAccessTokenRequest', appid, refreshToken, secret },
      await request.rpcForClient(),
    )
    const data = { access_token: refreshed.accessToken, expires_in: refreshed.expiresIn }
    return success(data, request.requestId)
  },
}
