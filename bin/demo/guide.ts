// The page of text a demo prints: what to click, whom to sign in as, what to paste.
import { displayDuration } from '../../gateway/pages/display.js'
import { packageFile } from '../package-root.js'
import { inShell } from '../shell.js'
import type { Credentials } from './authorize.js'
import { DEMO_USER } from './known-account.js'
import type { Seeded } from './seed.js'

export interface GuideInput {
  readonly url: string
  readonly appUrl: string
  readonly redirectUri: string
  readonly seeded: Seeded
  readonly credentials: Credentials
  readonly codeTtlSeconds: number
  readonly dataDir: string
}

type Parameters = Readonly<Record<string, string | number>>

export function guide(input: GuideInput, style: { readonly isColored: boolean }): string {
  const { url, appUrl, redirectUri, seeded, credentials, codeTtlSeconds } = input
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
   This is the example third-party app. It sends you to the authorization page, where you sign in as

     username   ${DEMO_USER.username}
     password   ${DEMO_USER.password}

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

${bold('3. Look behind it')}
   ${command} grant list
   ${command} audit list

Ctrl-C ends the demo. Its data stays in ${input.dataDir}; delete the folder to start afresh.
`
}

function texts(parameters: Parameters): Record<string, string> {
  return Object.fromEntries(Object.entries(parameters).map(([name, value]) => [name, String(value)]))
}
