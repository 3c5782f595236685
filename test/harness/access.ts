// A user's consent to an app on a spawned service: the operator's commands, the user's clicks, the app's exchange.
import { mkdtempSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { send } from './http.js'
import type { ServiceProcess } from './process.js'
import { smallSurvey } from './sample-surveys.js'
import { authorizePath, CALLBACK, withQuery } from './verbs.js'
import { Visitor } from './visitor.js'

export interface SpawnedAccess {
  readonly appid: string
  readonly secret: string
  readonly accessToken: string
  readonly refreshToken: string
  readonly openid: string
  /** `id title`, ascending. */
  readonly surveys: readonly string[]
}

const PASSWORD = 'correct horse'

/** An app, a user with these surveys, and their grant, over the service's own HTTP. */
export async function grantAccessOn(service: ServiceProcess, titles: readonly string[]): Promise<SpawnedAccess> {
  const app = await createParties(service, titles)
  const visitor = new Visitor(service.url)
  const page = await visitor.openSignedIn(authorizePath(app), { username: 'ana', password: PASSWORD })
  const reply = await visitor.decide(page, 'confirm')
  const code = new URL(reply.headers.get('location') ?? '').searchParams.get('code') ?? ''
  const { appid, secret, surveys } = app
  const exchange = { appid, secret, code, grant_type: 'authorization_code' }
  const { text } = await send(service.url, withQuery('/api/oauth2/access_token', exchange))
  const { data } = JSON.parse(text) as { data: { access_token: string; refresh_token: string; openid: string } }
  const { access_token: accessToken, refresh_token: refreshToken, openid } = data
  return { appid, secret, accessToken, refreshToken, openid, surveys }
}

async function createParties(service: ServiceProcess, titles: readonly string[]) {
  const args = ['app', 'create', '--name', 'Report Builder', '--redirect-uri', CALLBACK]
  const { appid, secret } = await service.json<{ appid: string; secret: string }>(args)
  await service.json(['user', 'create', '--username', 'ana', '--password-stdin'], { input: `${PASSWORD}\n` })
  const file = path.join(mkdtempSync(path.join(service.dataDir, 'surveys-')), 'surveys.json')
  writeFileSync(file, JSON.stringify(titles.map((title) => smallSurvey(title))))
  const stored = await service.json<{ survey_id: number; title: string }[]>([
    'survey',
    'import',
    file,
    '--owner',
    'ana',
  ])
  return {
    appid,
    secret,
    redirectUri: CALLBACK,
    surveys: stored.map(({ survey_id, title }) => `${survey_id} ${title}`),
  }
}
