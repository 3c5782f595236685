// Authorizes an app as the demo user would in a browser, so that the printed commands have live credentials.
import { randomUUID } from 'node:crypto'
import { AccountService } from '../../gen/surveyauth/v1/account_service_pb.js'
import { TokenService } from '../../gen/surveyauth/v1/token_service_pb.js'
import type { Running } from '../compose/running.js'
import { DEMO_USER } from './known-account.js'
import type { SeededApp } from './seed.js'

export interface Credentials {
  /** An unused code, good for CODE_TTL_SECONDS. */
  readonly code: string
  readonly accessToken: string
  /** Of a grant of its own: using it leaves `accessToken` alone. */
  readonly refreshToken: string
  readonly openid: string
}

/** Of a new session; anybody may sign in as the demo user. */
export type SignIn = (running: Running) => Promise<string>

export const byPassword: SignIn = async (running) => {
  const { username, password } = DEMO_USER
  const account = running.client(AccountService, 'gateway')
  return (await account.signIn({ username, password, source: '127.0.0.1' })).sessionToken
}

/** Confirms three times: for the access token, for the refresh token, and a code that is left to be exchanged by hand. */
export async function authorize(
  running: Running,
  app: SeededApp,
  redirectUri: string,
  signIn: SignIn,
): Promise<Credentials> {
  const account = running.client(AccountService, 'gateway')
  const token = running.client(TokenService, 'gateway')
  const sessionToken = await signIn(running)

  async function confirm(): Promise<string> {
    const request = { sessionToken, requestId: randomUUID(), appid: app.appid, redirectUri, scope: 'snsapi_user' }
    return (await token.issueCode(request)).code
  }

  const exchange = async () => token.exchangeCode({ appid: app.appid, secret: app.secret, code: await confirm() })

  const { accessToken, openid } = await exchange()
  const { refreshToken } = await exchange()
  const code = await confirm()
  await account.signOut({ sessionToken })
  return { code, accessToken, refreshToken, openid }
}
