// The page of text a demo prints: what to click, whom to sign in as, what to paste.
import { displayDuration } from '../../gateway/pages/display.js'
import { packageFile } from '../package-root.js'
import { inShell } from '../shell.js'
import type { Credentials } from './authorize.js'
import type { PlatformUser, ShownPlatform } from './handoff.js'
import { DEMO_USER } from './known-account.js'
import type { Seeded } from './seed.js'

export interface GuideInput {
  readonly url: string
  readonly appUrl: string
  readonly redirectUri: string
  /** Where users sign in; here if undefined. */
  readonly platform: ShownPlatform | undefined
  readonly seeded: Seeded
  readonly credentials: Credentials
  readonly codeTtlSeconds: number
  readonly dataDir: string
}

type Parameters = Readonly<Record<string, string | number>>

export function guide(input: GuideInput, style: { readonly isColored: boolean }): string {
  const { url, appUrl, redirectUri, platform, seeded, credentials, codeTtlSeconds } = input
  const { appid, secret } = seeded.pasted
  const { code, accessToken, refreshToken, openid } = credentials
  const bold = (text: string) => (style.isColored ? `\u001b[1m${text}\u001b[22m` : text)
  const link = (text: string) => (style.isColored ? `\u001b[36m${text}\u001b[39m` : text)
  const curl = (path: string, parameters: Parameters) =>
    `curl -s '${url}${path}?${new URLSearchParams(texts(parameters))}'`
  const authorization = {
    appid,
    redirect_uri: redirectUri,
    response_type: 'code',
    scope: 'snsapi_user',
    state: 'demo1',
  }
  const data = { appid, access_token: accessToken }
  const command = `DATA_DIR=${inShell(input.dataDir)} ${inShell(packageFile('bin/survey-auth.js'))}` // works in any folder

  return `
${bold('survey-auth demo')}

${bold('1. Click through it')}
   Open   ${link(appUrl)}
   This is the example third-party app. It sends you to the authorization page, ${platform ? 'which hands over to the platform, where you sign in as' : 'where you sign in as'}

${accounts(platform)}

   and confirm; the app then shows what it may read. To see what you have granted, and to end it: ${link(`${url}/connect/apps`)}

${bold('2. Call every endpoint yourself')}
   The credentials of a second app, so that ending access in the browser leaves these lines working (the secret expires in 30 days;
   the next run makes a new one):

     appid      ${appid}
     secret     ${secret}

   The authorization page. Confirm leads back to the app above, which says that it did not ask for this; the code is in the address bar:

${url}/connect/oauth2/authorize?${new URLSearchParams(authorization)}#wj_redirect

   Exchange a code. This one works once, and only for ${displayDuration(codeTtlSeconds, 'en')} from the start of the demo; after that the answer is
   invalid_code, and the page above gives another code:

${curl('/api/oauth2/access_token', { appid, secret, code, grant_type: 'authorization_code' })}

   Refresh an access token; its grant is another one, because a refresh ends the access token before it, and the next lines need theirs:

${curl('/api/oauth2/refresh_token', { appid, refresh_token: refreshToken, grant_type: 'refresh_token' })}

   The authorized user:

${curl('/api/oauth2/user', { ...data, openid })}

   The user's surveys, and one of them:

${curl('/api/surveys', { ...data, openid })}

${curl(`/api/surveys/${seeded.surveyId}`, data)}
${platform ? `\n${bold('3. Be the platform')}\n${byHand(platform, link)}` : ''}
${bold(`${platform ? 4 : 3}. Look behind it`)}
   ${command} grant list
   ${command} audit list

Ctrl-C ends the demo. Its data stays in ${input.dataDir}; delete the folder to start afresh.
`
}

function accounts(platform: ShownPlatform | undefined): string {
  if (!platform) return `     username   ${DEMO_USER.username}\n     password   ${DEMO_USER.password}`
  const { known, stranger } = platform
  const account = ({ name, password }: PlatformUser) => `     name ${name.padEnd(6)} password ${password}`
  return `${account(known)}\n${account(stranger)}   who is nobody here yet`
}

/** What the platform does when somebody signs in there, as lines to paste. */
function byHand({ url, rpcAddress, stranger }: ShownPlatform, link: (text: string) => string): string {
  const { externalId, nickname } = stranger
  const call = (method: string, message: Readonly<Record<string, string>>) => {
    const json = JSON.stringify({ signInChallenge: '$CHALLENGE', ...message }).replaceAll('"', '\\"')
    const [socket, base] = rpcAddress.startsWith('unix:')
      ? [` --unix-socket ${inShell(rpcAddress.slice('unix:'.length))}`, 'http://localhost']
      : ['', rpcAddress]
    return `curl -s${socket} ${base}/surveyauth.v1.SignInService/${method} -H 'content-type: application/json' -d "${json}"`
  }
  return `   At the platform itself, ${link(url)}, you are signed in too, and can sign out everywhere. What access apps have stays.
   Open the app in a private window, press Connect, and do not sign in: the address of the platform's page has a sign_in_challenge.
   These two calls are all that the platform makes:

CHALLENGE=the_sign_in_challenge_of_the_address

${call('GetSignInRequest', {})}

${call('AcceptSignIn', { externalId, nickname })}

   Open its redirectTo in the same browser, within a minute: ${nickname} is signed in.
`
}

function texts(parameters: Parameters): Record<string, string> {
  return Object.fromEntries(Object.entries(parameters).map(([name, value]) => [name, String(value)]))
}
