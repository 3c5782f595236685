import type { GetAuthorizedUserResponse } from '../../gen/surveyauth/v1/token_service_pb.js'
import { MAX_CREDENTIAL_LENGTH, MAX_ID_LENGTH } from '../bounds.js'
import { jsonBytes, successBytes } from '../envelope.js'
import type { Route } from '../http.js'

/** The basic profile of the user who authorized (spec 4.4, 2.5). */
export const userRoute: Route = {
  name: 'user',
  method: 'GET',
  path: '/api/oauth2/user',
  kind: 'api',
  async answer(request, { token }) {
    const query = request.query()
    const appid = query.required('appid', MAX_ID_LENGTH)
    const accessToken = query.required('access_token', MAX_CREDENTIAL_LENGTH)
    const openid = query.required('openid', MAX_ID_LENGTH)

    const user = await token.getAuthorizedUser(
      {
        $typeName: 'surveyauth.v1.GetAuthorizedUserRequest',
        appid,
        accessToken,
        openid,
        wantsValidator: false,
      },
      request.rpc,
    )
    return successBytes(profileBytes(user), request.requestId)
  },
}

/** Characters of all. With this many, they are forgotten and made again. */
const MAX_CHARACTERS = 4 * 1024 * 1024

const profiles = new Map<string, { readonly nickname: string; readonly avatar: string; readonly bytes: string }>()
let characters = 0

/** The profile by jsonBytes; who is asked for again and has not changed is not written anew. */
function profileBytes({ openid, nickname, avatar }: GetAuthorizedUserResponse): string {
  const known = profiles.get(openid)
  if (known?.nickname === nickname && known.avatar === avatar) return known.bytes
  const bytes = jsonBytes({ openid, nickname, avatar })
  characters += 2 * bytes.length // what it was made of too
  if (characters > MAX_CHARACTERS) {
    profiles.clear()
    characters = 2 * bytes.length
  }
  profiles.set(openid, { nickname, avatar, bytes })
  return bytes
}
