// The kit for providers: it passes a right one, and fails wrong ones exactly where they are wrong.
import { readFileSync } from 'node:fs'
import { Code } from '@connectrpc/connect'
import { expect, onTestFinished, test } from 'vitest'
import { parseFixtures } from '../../bin/conformance/fixtures.js'
import { Connection } from '../../bin/conformance/probe.js'
import { claimedBy, PROFILES, runProfile, testsOf } from '../../bin/conformance/run-kit.js'
import { type ProviderCapability, SurveyProvider } from '../../gen/surveyauth/provider/v1/survey_provider_pb.js'
import { parseAddress } from '../../services/rpc/address.js'
import { fixtures, type Methods, Refusal, right, serveProvider } from './array-provider.js'
import { wrongProviders } from './wrong-providers.js'

/** Ids of the tests that it fails, each run a few times only. */
async function failedBy(methods: Methods, onCancelled?: () => void): Promise<string[]> {
  const url = await serveProvider(methods, onCancelled && { onCancelled })
  const connection = new Connection(parseAddress(url), undefined)
  onTestFinished(() => connection.close())
  const { response } = await connection.call(SurveyProvider.method.getProviderInfo, {} as never)
  const claimed = claimedBy(response?.capabilities ?? ([] as ProviderCapability[]))
  const failed: string[] = []
  for (const profile of PROFILES) {
    await runProfile(profile, {
      connection,
      fixtures: parseFixtures('fixtures', JSON.stringify(fixtures)),
      claimed,
      isChosen: () => true,
      repeats: { inTurn: 1, atOnce: 2 },
      onOutcome: ({ test: { id }, failure }) => failure && failed.push(id),
    })
  }
  return failed
}

test('a right provider passes', async () => {
  expect(await failedBy(right)).toEqual([])
})

test.each(wrongProviders)('one that $fault fails $fails', async ({ fails, methods }) => {
  const state = { isCancelled: false }
  const onCancelled = () => {
    state.isCancelled = true
  }
  expect(await failedBy({ ...right, ...methods(state) }, onCancelled)).toEqual(fails)
})

test('one that ceases to answer fails the tests at which it did, and the others are left out', async () => {
  const state = { isGone: false }
  const unlessGone = Object.entries(right).map(([name, method]) => [
    name,
    (request: never) => {
      state.isGone ||= name === 'getSurvey'
      if (state.isGone) throw new Refusal(Code.Unavailable, 'gone')
      return method(request)
    },
  ])
  expect(await failedBy(Object.fromEntries(unlessGone))).toEqual(['SP-07', 'SP-31'])
})

test('every test of the kit fails some wrong provider', () => {
  const ids = PROFILES.flatMap((profile) => testsOf[profile]).map(({ id }) => id)
  expect(new Set(ids).size).toBe(ids.length)
  expect([...new Set(wrongProviders.flatMap(({ fails }) => fails))].sort()).toEqual(ids)
})

test('docs/provider-conformance.md has each test under its id, with its title and its reason, and an example of fixtures', () => {
  const page = readFileSync(new URL('../../docs/provider-conformance.md', import.meta.url), 'utf8')
  const example = readFileSync(new URL('../../examples/provider/fixtures.json', import.meta.url), 'utf8')
  expect(page).toContain(example.replace(/^(?=.)/gm, '    '))
  const [, ...sections] = page.split(/^### /m)
  const written = sections.map((section) => section.split('\n## ')[0]?.replace(/\s+/g, ' ').trim())
  const ofKit = PROFILES.flatMap((profile) => testsOf[profile])
  expect(written).toEqual(ofKit.map(({ id, title, why }) => `${id} **${title}**: ${why}.`))
})
