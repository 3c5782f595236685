// Authorizes an app as the demo user would in a browser, so that the printed commands have live credentials.
import { randomUUID } from 'node:crypto'
import { AccountService } from '../../gen/surveyauth/v1/account_service_pb.js'
import { TokenService } from '../../gen/surveyauth/v1/token_service_pb.js'
import type { AllInOne } from '../compose/all-in-one.js'
import { DEMO_USER } from './known-account.js'
import type { SeededApp } from './seed.js'

export interface Credentials {
  /** An unused code, good for CODE_TTL_SECONDS. */
  readonly code: string
  readonly accessToken: string
  readonly refreshToken: string
  readonly openid: string
}

/** Confirms twice: one code is exchanged at once, the other is left to be exchanged by hand. */
export async function authorize(running: AllInOne, app: SeededApp, redirectUri: string): Promise<Credentials> {
  const account = running.client(AccountService, 'gateway')
  const token = running.client(TokenService, 'gateway')
  const { username, password } = DEMO_USER
  const { sessionToken } = await account.signIn({ username, password, source: '127.0.0.1' })

  async function confirm(): Promise<string> {
    const request = { sessionToken, requestId: randomUUID(), appid: app.appid, redirectUri, scope: 'snsapi_user' }
    return (await token.issueCode(request)).code
  }

  const exchanged = await token.exchangeCode({ appid: app.appid, secret: app.secret, code: await confirm() })
  const code = await confirm()
  await account.signOut({ sessionToken })
  const { accessToken, refreshToken, openid } = exchanged
  return { code, accessToken, refreshToken, openid }
}
