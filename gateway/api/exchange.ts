import { success } from '../answer.js'
import { Problem } from '../errors.js'
import type { Route } from '../http.js'
import { MAX_ID_LENGTH, MAX_REDIRECT_URI_LENGTH, MAX_SECRET_LENGTH, MAX_WORD_LENGTH } from '../query.js'

/** Exchanges a code for a token grant (spec 4.2, 2.3). */
export const accessTokenRoute: Route = {
  name: 'access_token',
  method: 'GET',
  path: '/api/oauth2/access_token',
  kind: 'api',
  async answer(request, { token }) {
    const query = request.query()
    const grantType = query.required('grant_type', MAX_WORD_LENGTH) // first: a request for another grant type has others
    if (grantType !== 'authorization_code')
      throw new Problem('invalid_grant_type', 'grant_type must be authorization_code')
    const appid = query.required('appid', MAX_ID_LENGTH)
    const secret = query.required('secret', MAX_SECRET_LENGTH)
    const code = query.credential('code')
    const redirectUri = query.optional('redirect_uri', MAX_REDIRECT_URI_LENGTH)
    const codeVerifier = query.optional('code_verifier', MAX_WORD_LENGTH)

    const grant = await token.exchangeCode(
      { $typeName: 'surveyauth.v1.ExchangeCodeRequest', appid, secret, code, redirectUri, codeVerifier },
      await request.rpcForClient(),
    )
    const data = {
      access_token: grant.accessToken,
      refresh_token: grant.refreshToken,
      expires_in: grant.expiresIn,
      openid: grant.openid,
    }
    return success(data, request.requestId)
  },
}
