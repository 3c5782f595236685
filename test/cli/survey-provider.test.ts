// SURVEY_PROVIDER_URL on the command line: what is wrong with it, what the doctor says, and which commands do nothing then.
import { existsSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import { createProcess } from '../harness/process.js'
import { smallSurvey } from '../harness/sample-surveys.js'
import { owning, startSurveyProvider } from '../harness/survey-provider.js'

vi.setConfig({ testTimeout: 120_000 }) // each test spawns several processes

test.each([
  ['http://surveys.example', 'plaintext is for loopback only'],
  ['https://surveys.example/path', 'must be an address without path, query or user'],
  ['unix:', 'unix: needs a path'],
  ['postgres://surveys.example', 'must start with'],
])('%s is refused with exit 78: %s', async (url, why) => {
  const service = await createProcess({ SURVEY_PROVIDER_URL: url })
  const { exitCode, stderr } = await service.run(['serve'], { startsNothing: true })
  expect({ exitCode, stderr }).toMatchObject({
    exitCode: 78,
    stderr: expect.stringContaining(`SURVEY_PROVIDER_URL ${why}`),
  })
})

test.each(['serve', 'serve survey'])('survey-auth %s needs the certificates for one over https', async (words) => {
  const service = await createProcess({ SURVEY_PROVIDER_URL: 'https://127.0.0.1:1' })
  const { exitCode, stderr } = await service.run(words.split(' '), { startsNothing: true })
  expect(exitCode).toBe(78)
  for (const variable of ['RPC_TLS_CERT', 'RPC_TLS_KEY', 'RPC_TLS_CA'])
    expect(stderr).toContain(`survey-auth: ${variable}`)
})

async function withProvider(env = {}) {
  const provider = await startSurveyProvider(owning({}))
  onTestFinished(() => provider.kill())
  const service = await createProcess({ SURVEY_PROVIDER_URL: provider.url, ...env })
  await service.json(['user', 'create', '--username', 'ann', '--password-stdin'], { input: 'correct horse\n' })
  return { provider, service }
}

test('the doctor says who the provider is, or why it is no good, and misses no database of surveys', async () => {
  const { provider, service } = await withProvider()
  const findings = async () => {
    const { exitCode, stdout } = await service.run(['doctor', '--json'])
    const all = JSON.parse(stdout) as { check: string; state: string; detail: string }[]
    const ours = all.filter(({ check }) => check.startsWith('survey'))
    return { exitCode, ours }
  }
  const detail = `ACME Surveys 4.2, without answers, answers at ${provider.url}`
  expect(await findings()).toEqual({ exitCode: 0, ours: [{ check: 'survey provider', state: 'ok', detail }] })
  const asBefore = provider.behaviour.getProviderInfo
  provider.behaviour.getProviderInfo = () => ({})
  const bad = `${provider.url}: the answer to GetProviderInfo is no good: name: at least 1 characters; start or mend it, or correct SURVEY_PROVIDER_URL`
  expect(await findings()).toEqual({ exitCode: 1, ours: [{ check: 'survey provider', state: 'wrong', detail: bad }] })
  provider.behaviour.getProviderInfo = asBefore
  expect(await findings()).toMatchObject({ exitCode: 0, ours: [{ state: 'ok' }] })
  await provider.kill()
  expect((await findings()).ours).toMatchObject([{ state: 'wrong', detail: expect.stringContaining('ECONNREFUSED') }])
})

describe.each([{ place: 'with a running server' }, { place: 'without a server' }])('$place', ({ place }) => {
  test('surveys are imported, listed, exported and deleted at the provider, and users are deleted without them', async () => {
    const { service } = await withProvider()
    if (place === 'with a running server') await service.start()
    const file = path.join(service.dataDir, 'survey.json')
    writeFileSync(file, JSON.stringify(smallSurvey()))
    for (const words of [
      ['survey', 'import', file, '--owner', 'ann'],
      ['survey', 'list'],
      ['survey', 'export'],
      ['survey', 'delete', '1'],
    ]) {
      const { exitCode, stderr } = await service.run(words)
      expect({ exitCode, stderr }).toEqual({
        exitCode: 1,
        stderr: expect.stringContaining('read from SURVEY_PROVIDER_URL'),
      })
    }
    expect((await service.run(['audit', 'list', '--username', 'ann'])).exitCode).toBe(0)
    expect((await service.run(['migrate'])).stdout).not.toContain('survey.db')
    await service.json(['user', 'disable', 'ann'])
    expect(await service.json(['user', 'delete', 'ann'])).toMatchObject({ username: 'ann', surveys: 0 })
    expect(existsSync(path.join(service.dataDir, 'survey.db'))).toBe(false)
  })
})
