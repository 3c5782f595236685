import { success } from '../answer.js'
import type { Route } from '../http.js'
import { MAX_ID_LENGTH } from '../query.js'

/** The basic profile of the user who authorized (spec 4.4, 2.5). */
export const userRoute: Route = {
  name: 'user',
  method: 'GET',
  path: '/api/oauth2/user',
  kind: 'api',
  async answer(request, { token }) {
    const query = request.query()
    const appid = query.required('appid', MAX_ID_LENGTH)
    const accessToken = query.credential('access_token')
    const openid = query.required('openid', MAX_ID_LENGTH)

    const user = await token.getAuthorizedUser(
      { $typeName: 'surveyauth.v1.GetAuthorizedUserRequest', appid, accessToken, openid },
      request.rpc,
    )
    return success({ openid: user.openid, nickname: user.nickname, avatar: user.avatar }, request.requestId)
  },
}
