// Our own survey service is a provider too: on each database it passes the kit.
import { readFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { expect, test, vi } from 'vitest'
import { connectTo } from '../../bin/compose/remote.js'
import { readConfig } from '../../bin/config.js'
import { SurveyService } from '../../gen/surveyauth/v1/survey_service_pb.js'
import { parseAddress } from '../../services/rpc/address.js'
import { clientOf } from '../../services/rpc/client.js'
import { createProcess, type Environment, type ServiceProcess } from '../harness/process.js'
import { everyQuestionType, smallSurvey } from '../harness/sample-surveys.js'
import { migratedDatabase } from '../postgres/shared-cluster.js'

vi.setConfig({ testTimeout: 120_000 }) // spawns a service

/** A user with surveys, as fixtures name one. */
async function ownerWith(service: ServiceProcess, username: string, surveys: readonly object[]) {
  const create = ['user', 'create', '--username', username, '--password-stdin']
  const { user_id } = await service.json<{ user_id: string }>(create, { input: 'correct horse\n' })
  const file = path.join(service.dataDir, `${username}.json`)
  writeFileSync(file, JSON.stringify(surveys))
  const imported = await service.json<{ survey_id: number }[]>(['survey', 'import', file, '--owner', username])
  return { user_id, surveys: imported.map(({ survey_id }) => survey_id) }
}

async function importAnswers(url: string, { survey_id, count }: { survey_id: number; count: number }): Promise<void> {
  const remote = connectTo('survey', [parseAddress(url)], readConfig({}), 'operator')
  const answers = Array.from({ length: count }, (_, at) => ({
    respondentId: `r-${at % 7}`,
    startTime: { seconds: BigInt(1_767_225_600 + at * 60) },
    endTime: { seconds: BigInt(1_767_225_630 + at * 60) },
    pages: [{ id: 'p-1-abcd', questions: [{ id: 'q-4-abcd', type: 'text', text: `很好 ${at}` }] }],
  }))
  await clientOf(SurveyService, remote.invoke).importAnswers({ surveyId: BigInt(survey_id), answers })
  await remote.close()
}

function example(name: string): object {
  return JSON.parse(readFileSync(new URL(`../../examples/surveys/${name}`, import.meta.url), 'utf8')) as object
}

test.each<[string, () => Promise<Environment>]>([
  ['SQLite', async () => ({})],
  [
    'PostgreSQL',
    async () => {
      const url = await migratedDatabase()
      return { TOKEN_DATABASE_URL: url, SURVEY_DATABASE_URL: url }
    },
  ],
])('our own store on %s is conformant', async (_, makeEnv) => {
  const service = await createProcess(await makeEnv())
  const small = Array.from({ length: 7 }, (_, at) => smallSurvey(`Survey ${at}`, at % 3 === 1 ? 2 : 0))
  const ann = await ownerWith(service, 'ann', [...small, everyQuestionType(), example('onboarding.zh.json')])
  const bob = await ownerWith(service, 'bob', [smallSurvey(), example('remote-work.en.json')])
  await service.start()
  const url = `unix:${path.join(service.dataDir, 'rpc.sock')}`
  const answers = { survey_id: ann.surveys[small.length] ?? 0, count: 40 }
  await importAnswers(url, answers)
  const fixtures = { owners: [ann, bob], missing_owner: { user_id: 'nobody' }, missing_survey: 999_999, answers }
  writeFileSync(path.join(service.dataDir, 'f.json'), JSON.stringify(fixtures))
  const { exitCode, stdout } = await service.cli(['conformance', 'provider', '--url', url, '--fixtures', 'f.json'])
  expect(stdout).toMatch(/\ncore (\d+)\/\1 · answers (\d+)\/\2 .*→ CONFORMANT\n$/)
  expect(exitCode).toBe(0)
})
