// What a demo starts with: a user, an app, surveys. Running it again finds what is there.
import { readdirSync, readFileSync } from 'node:fs'
import path from 'node:path'
import { timestampFromMs } from '@bufbuild/protobuf/wkt'
import { surveyFromJson } from '../../gateway/api/survey-json.js'
import type { App, User } from '../../gen/surveyauth/v1/admin_service_pb.js'
import { findIn, pagesOfApps, type SurveyOperator, unlessMissing } from '../compose/operator.js'
import { packageFile } from '../package-root.js'
import { DEMO_USER } from './known-account.js'

const DEMO_APP = 'Harvest' // as the example app calls itself
const SECRET_LIFE_MS = 30 * 86_400_000
/** Callbacks of earlier runs that stay registered: a second demo beside this one keeps working. */
const MAX_CALLBACKS = 10

export interface Seeded {
  readonly appid: string
  readonly secret: string
  readonly surveyId: number
}

/** Makes sure that user, app and surveys are there; the app gets a new secret that ends by itself. */
export async function seed(operator: SurveyOperator, redirectUri: string): Promise<Seeded> {
  const user = await demoUser(operator)
  const surveyId = await demoSurveys(operator, user)
  const { appid } = await demoApp(operator, redirectUri)
  const now = Date.now()
  const { secret } = await operator.admin.addAppSecret({
    appid,
    name: `demo ${new Date(now).toISOString()}`,
    expireTime: timestampFromMs(now + SECRET_LIFE_MS),
  })
  return { appid, secret, surveyId }
}

async function demoUser({ admin }: SurveyOperator): Promise<User> {
  const { username } = DEMO_USER
  const found = await unlessMissing(admin.getUser({ username }))
  const user = found?.user ?? (await admin.createUser(DEMO_USER)).user
  if (!user) throw new Error('an answer without its user')
  return user
}

async function demoApp({ admin }: SurveyOperator, redirectUri: string): Promise<App> {
  const found = await findIn(pagesOfApps(admin), ({ name }) => name === DEMO_APP)
  const { app } = found
    ? await admin.updateApp({ appid: found.appid, redirectUris: withCallback(found.redirectUris, redirectUri) })
    : await admin.createApp({ name: DEMO_APP, redirectUris: [redirectUri] })
  if (!app) throw new Error('an answer without its app')
  return app
}

function withCallback(redirectUris: readonly string[], redirectUri: string): string[] {
  return [redirectUri, ...redirectUris.filter((uri) => uri !== redirectUri)].slice(0, MAX_CALLBACKS)
}

/** @returns the id of the first of the user's surveys. */
async function demoSurveys({ survey }: SurveyOperator, { userId }: User): Promise<number> {
  const stored = await survey.exportSurveys({ ownerUserId: userId, pageSize: 1 })
  const first = stored.surveys[0]?.survey
  if (first) return Number(first.id)
  const imported = await survey.importSurveys({ ownerUserId: userId, surveys: exampleSurveys() })
  return Number(imported.surveys[0]?.id ?? 0)
}

function exampleSurveys() {
  const folder = packageFile('examples/surveys')
  const files = readdirSync(folder).filter((name) => name.endsWith('.json'))
  return files.sort().flatMap((name) => {
    const json: unknown = JSON.parse(readFileSync(path.join(folder, name), 'utf8'))
    return (Array.isArray(json) ? json : [json]).map((entry) => surveyFromJson(entry))
  })
}
