// A process that reads surveys from a platform's provider: what it says of the provider, and what it serves without it.
import { existsSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import * as grpc from '@grpc/grpc-js'
import { expect, onTestFinished, test } from 'vitest'
import { start } from '../../bin/compose/start.js'
import { readConfig } from '../../bin/config.js'
import { Clock } from '../harness/clock.js'
import { collectLog } from '../harness/collect-log.js'
import { expectError } from '../harness/envelope.js'
import { freePort } from '../harness/free-port.js'
import { owning, startSurveyProvider } from '../harness/survey-provider.js'
import { startService } from '../harness.js'
import { createAuthority, materialOf, pemFiles } from '../rpc/certificates.js'

const good = owning({ ana: [{ id: 7n, title: 'x' }] })

async function temporary(): Promise<string> {
  const folder = await mkdtemp(path.join(tmpdir(), 'survey-auth-test-'))
  onTestFinished(() => rm(folder, { recursive: true, force: true }))
  return folder
}

test('one process serves tokens without its provider, names it in /readyz, log and metrics, and finds it again', async () => {
  const at = `127.0.0.1:${await freePort()}`
  const place = { dataDir: await temporary(), clock: new Clock() }
  const env = { SURVEY_PROVIDER_URL: `http://${at}`, ADMIN_PORT: String(await freePort()) }
  const service = await startService({ env, place })
  const read = async (page: string) => (await fetch(`${service.backend.adminUrl}${page}`)).text()
  const readyz = async () => {
    const { status, text } = await fetch(`${service.backend.adminUrl}/readyz`).then(async (answer) => ({
      status: answer.status,
      text: await answer.text(),
    }))
    return `${status} ${text}`
  }
  await expect.poll(readyz, { timeout: 10_000 }).toBe(`200 ready\nsurvey provider at http://${at}: unavailable\n`)
  const ana = await service.grantAccess({ user: await service.createUser({ externalId: 'ana' }) })
  expect((await service.refresh(ana.app, ana.tokens.refresh_token)).code).toBe('OK')
  expectError(await service.survey(ana, 7), 'remote_server_error')
  const why = `ready, but without: survey provider at http://${at} (connect ECONNREFUSED ${at})`
  await expect.poll(() => service.backend.log(), { timeout: 10_000 }).toContain(why)

  while ((await service.survey(ana, 7)).headers.get('retry-after') !== '2') await new Promise(setImmediate)
  const metrics = await read('/metrics')
  expect(metrics).toContain('survey_auth_survey_provider_breaker_open 1')
  expect(metrics).toContain('survey_auth_survey_provider_calls_total{method="GetSurvey",outcome="unavailable"} 5')
  expect(metrics).toContain(
    'survey_auth_survey_provider_calls_total{method="GetSurvey",outcome="ownership_violation"} 0',
  )

  const provider = await startSurveyProvider(good, { at })
  onTestFinished(() => provider.kill())
  await expect.poll(async () => (await service.survey(ana, 7)).code, { timeout: 10_000 }).toBe('OK')
  await expect.poll(readyz, { timeout: 10_000 }).toBe('200 ready\n')
  await expect.poll(() => service.backend.log(), { timeout: 10_000 }).toContain('everything is in order again')
  expect(service.backend.log()).toContain(`surveys are read from http://${at}: ACME Surveys 4.2, without answers`)
  expect(service.backend.log().split(why).length, 'told once').toBe(2)
  expect(await read('/metrics')).toContain('survey_auth_survey_provider_breaker_open 0')
  expect(existsSync(path.join(place.dataDir, 'survey.db')), 'no database of surveys is made').toBe(false)
})

test('a provider that is killed and restarted under load costs no app its token, and few their answers', async () => {
  const at = `127.0.0.1:${await freePort()}`
  let provider = await startSurveyProvider(good, { at })
  onTestFinished(() => provider.kill())
  const service = await startService({ env: { SURVEY_PROVIDER_URL: `http://${at}` } })
  const ana = await service.grantAccess({ user: await service.createUser({ externalId: 'ana' }) })
  const outcomes = new Map<string, number>()
  let isOver = false
  const load = Array.from({ length: 8 }, async () => {
    while (!isOver) {
      const { type } = await service.survey(ana, 7)
      outcomes.set(type, (outcomes.get(type) ?? 0) + 1)
    }
  })
  for (let restart = 0; restart < 5; restart += 1) {
    await new Promise((resolve) => setTimeout(resolve, 300))
    await provider.kill()
    await new Promise((resolve) => setTimeout(resolve, 100))
    provider = await startSurveyProvider(good, { at })
  }
  isOver = true
  await Promise.all(load)
  expect([...outcomes.keys()].filter((type) => !['', 'remote_server_error'].includes(type))).toEqual([])
  expect(outcomes.get('remote_server_error') ?? 0).toBeLessThan(outcomes.get('') ?? 0)
})

test.each([
  ['DNS:platform.test,IP:127.0.0.1', undefined],
  ['DNS:gateway.test,IP:127.0.0.1', 'its certificate does not have the role survey_provider: see RPC_CALLERS'],
])('a survey service that finds a provider with the certificate %s over mTLS lacks: %s', async (name, why) => {
  const [DATA_DIR, authority] = [await temporary(), createAuthority()]
  const { cert, key } = authority.issue(name)
  const pair = { cert_chain: Buffer.from(cert), private_key: Buffer.from(key) }
  const credentials = grpc.ServerCredentials.createSsl(Buffer.from(authority.cert), [pair], true)
  const provider = await startSurveyProvider(good, { credentials })
  onTestFinished(() => provider.kill())
  const env = {
    ...pemFiles(DATA_DIR, materialOf(authority, authority.issue('DNS:survey.test'))),
    RPC_CALLERS: 'survey_provider=DNS:platform.test;gateway=DNS:gateway.test',
    SURVEY_PROVIDER_URL: provider.url,
  }
  const { logStream, lines } = collectLog()
  const running = await start('survey', readConfig({ DATA_DIR, ADMIN_PORT: '0', ...env }), { logStream })
  onTestFinished(() => running.close())
  const said = why ?? `surveys are read from ${provider.url}: ACME Surveys 4.2`
  await expect.poll(() => lines.join(''), { timeout: 10_000 }).toContain(said)
  const { lacks } = await running.readiness()
  expect(lacks.filter((line) => line.startsWith('survey provider'))).toHaveLength(why === undefined ? 0 : 1)
})

test('a survey service without its provider is ready, so that its gateways stay ready for tokens', async () => {
  const DATA_DIR = await temporary()
  const common = { DATA_DIR, PORT: '0', ADMIN_PORT: '0' }
  const SURVEY_PROVIDER_URL = `unix:${DATA_DIR}/nobody.sock`
  for (const [mode, env] of [
    ['token', {}],
    ['survey', { SURVEY_PROVIDER_URL }],
    ['gateway', {}],
  ] as const) {
    const running = await start(mode, readConfig({ ...common, ...env }), collectLog())
    onTestFinished(() => running.close())
    const lacks = mode === 'survey' ? [`survey provider at ${SURVEY_PROVIDER_URL}: unavailable`] : []
    await expect.poll(() => running.readiness(), { timeout: 10_000 }).toEqual({ isReady: true, lacks })
  }
})
