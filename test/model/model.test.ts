// Random runs of everything operators, users and apps do, each answer compared with the specification in model.ts.
// MODEL_RUNS sets their number; a run is some 50 steps. A failure prints the shortest run found that shows it.
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import fc from 'fast-check'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { Clock } from '../harness/clock.js'
import { openService, type ServiceOptions } from '../harness.js'
import { Model, type ModelApp, type ModelUser, type Rules } from './model.js'
import { anyStep, compareAll, type Real } from './steps.js'

const RUNS = Number(process.env.MODEL_RUNS ?? '50')
const STEPS = 150
const SECOND = 1000
const DAY = 86_400 * SECOND

/** Lifetimes of the specification; the caps are small so that runs reach them. */
const rules: Rules = {
  codeMs: 300 * SECOND,
  accessTokenMs: 259_200 * SECOND,
  refreshTokenMs: 30 * DAY,
  overlapMs: 300 * SECOND,
  graceMs: 10 * SECOND,
  maxCodes: 3,
  maxGrants: 3,
}
const place = { dataDir: mkdtempSync(path.join(tmpdir(), 'survey-auth-model-')), clock: new Clock() }
const options: ServiceOptions = {
  place,
  env: {
    LOG_LEVEL: 'error',
    MAX_LIVE_CODES_PER_USER_AND_APP: String(rules.maxCodes),
    MAX_GRANTS_PER_USER_AND_APP: String(rules.maxGrants),
  },
}

let real: Real
beforeAll(async () => {
  real = {
    service: await openService(options),
    counts: new Map(),
    async restart() {
      await real.service.backend.close()
      real.service = await openService(options)
    },
  }
})
afterAll(async () => {
  await real.service.backend.close()
  rmSync(place.dataDir, { recursive: true, force: true })
})

/** Two apps and two users that no other run has touched. */
async function setUp(): Promise<{ model: Model; real: Real }> {
  const model = new Model(rules)
  for (const requiresSecretOnRefresh of [false, true]) model.apps.push(await createApp(requiresSecretOnRefresh))
  for (const name of ['ana', 'bo']) model.users.push(await createUser(name))
  return { model, real }
}

async function createApp(requiresSecretOnRefresh: boolean): Promise<ModelApp> {
  const redirectUris = ['https://app.example/callback', 'https://app.example/other']
  const { app, secret, secretId } = await real.service.admin.createApp({
    name: 'App',
    redirectUris,
    requiresSecretOnRefresh,
  })
  const secrets = [{ id: secretId, text: secret, expiresAtMs: Number.MAX_SAFE_INTEGER, isRevoked: false }]
  return {
    appid: app?.appid ?? '',
    redirectUris,
    requiresSecretOnRefresh,
    secrets,
    readsAnswers: false,
    isDisabled: false,
  }
}

let people = 0

async function createUser(name: string): Promise<ModelUser> {
  people += 1
  const username = `${name}${people}`
  const password = `password of ${username}`
  await real.service.admin.createUser({ username, password, nickname: username, avatar: '' })
  return { username, password, nickname: username, session: undefined, signedInAtMs: 0, isDisabled: false }
}

test('every answer is what the specification says, whatever happened before', {
  timeout: 60_000 + RUNS * 5_000,
}, async () => {
  const runs = fc.commands([anyStep], { maxCommands: STEPS, size: 'max' })
  await fc.assert(
    fc.asyncProperty(runs, async (steps) => {
      const at = await setUp()
      await fc.asyncModelRun(() => at, steps)
      await compareAll(at.model, at.real)
    }),
    { numRuns: RUNS, endOnFailure: false },
  )
  const counts = [...real.counts].sort(([, a], [, b]) => b - a)
  const total = counts.reduce((sum, [, count]) => sum + count, 0)
  process.stdout.write(
    `${total} steps in ${RUNS} runs: ${counts.map(([name, count]) => `${name} ${count}`).join(', ')}\n`,
  )
  expect(total).toBeGreaterThan(RUNS * 10)
})
