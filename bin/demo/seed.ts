// What a demo starts with: a user, two apps, surveys. Running it again finds what is there.
import { readdirSync, readFileSync } from 'node:fs'
import path from 'node:path'
import { timestampFromMs } from '@bufbuild/protobuf/wkt'
import { surveyFromJson } from '../../gateway/api/survey-from-json.js'
import type { App, User } from '../../gen/surveyauth/v1/admin_service_pb.js'
import { findIn, pagesOfApps, type SurveyOperator, unlessMissing } from '../compose/operator.js'
import { packageFile } from '../package-root.js'
import { DEMO_USER } from './known-account.js'

/** To click through, named as the example calls itself, and for the printed lines: ending one's grants leaves the other's. */
const DEMO_APPS = { clicked: 'Harvest', pasted: 'Command line (curl)' } as const
const SECRET_LIFE_MS = 30 * 86_400_000
/** Callbacks of earlier runs that stay registered: a second demo beside this one keeps working. */
const MAX_CALLBACKS = 10

export interface SeededApp {
  readonly appid: string
  readonly secret: string
}

export interface Seeded extends Readonly<Record<keyof typeof DEMO_APPS, SeededApp>> {
  readonly surveyId: number
}

/** Makes sure that user, apps and surveys are there; each app gets a new secret that expires by itself. */
export async function seed(operator: SurveyOperator, redirectUri: string): Promise<Seeded> {
  const user = await demoUser(operator)
  const surveyId = await demoSurveys(operator, user)
  const clicked = await appWithSecret(operator, DEMO_APPS.clicked, redirectUri)
  const pasted = await appWithSecret(operator, DEMO_APPS.pasted, redirectUri)
  return { clicked, pasted, surveyId }
}

async function appWithSecret(operator: SurveyOperator, name: string, redirectUri: string): Promise<SeededApp> {
  const { appid } = await demoApp(operator, name, redirectUri)
  const now = Date.now()
  const { secret } = await operator.admin.addAppSecret({
    appid,
    name: `demo ${new Date(now).toISOString()}`,
    expireTime: timestampFromMs(now + SECRET_LIFE_MS),
  })
  return { appid, secret }
}

async function demoUser({ admin }: SurveyOperator): Promise<User> {
  const { username } = DEMO_USER
  const found = await unlessMissing(admin.getUser({ username }))
  const user = found?.user ?? (await admin.createUser(DEMO_USER)).user
  if (!user) throw new Error('an answer without its user')
  return user
}

async function demoApp({ admin }: SurveyOperator, name: string, redirectUri: string): Promise<App> {
  const found = await findIn(pagesOfApps(admin), (app) => app.name === name)
  const { app } = found
    ? await admin.updateApp({ appid: found.appid, redirectUris: withCallback(found.redirectUris, redirectUri) })
    : await admin.createApp({ name, redirectUris: [redirectUri] })
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
