// survey-auth conformance provider: what it prints, writes and exits with.
import { readFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { expect, test, vi } from 'vitest'
import { parse } from 'yaml'
import { testsOf } from '../../bin/conformance/run-kit.js'
import { createProcess, type ServiceProcess } from '../harness/process.js'
import { createAuthority, materialOf, pemFiles } from '../rpc/certificates.js'
import { fixtures, right, serveProvider, withoutAnswers } from './array-provider.js'
import { wrongProviders } from './wrong-providers.js'

vi.setConfig({ testTimeout: 120_000 })

const [CORE, ANSWERS] = [testsOf.core.length, testsOf.answers.length]

/** A folder to work in, with a file of fixtures, and the command in it. */
async function createKit(content: unknown = fixtures): Promise<ServiceProcess> {
  const service = await createProcess()
  writeFileSync(path.join(service.dataDir, 'f.json'), typeof content === 'string' ? content : JSON.stringify(content))
  return service
}

/** In a process of its own: all tests take longer than other commands may. */
function kit(service: ServiceProcess, url: string, ...args: readonly string[]) {
  return service.cli(['conformance', 'provider', '--url', url, '--fixtures', 'f.json', ...args])
}

test('a right provider is conformant: exit 0, one line for each test, and the reports say so', async () => {
  const service = await createKit()
  const url = await serveProvider(right)
  const { exitCode, stdout, stderr } = await kit(service, url, '--report', 'r.yaml', '--junit', 'r.xml')
  expect({ exitCode, stderr }).toEqual({ exitCode: 0, stderr: '' })
  const lines = stdout.trimEnd().split('\n')
  expect(lines[0]).toBe('survey-auth provider kit 1.0 · Array Surveys 4.2 · claims: core, answers')
  expect(lines.filter((line) => /^ {2}ok {3}SP-\d\d .+ \(p50 \d+\.\d ms, p99 \d+\.\d ms\)$/.test(line))).toHaveLength(
    CORE + ANSWERS,
  )
  expect(lines.at(-1)).toBe(`core ${CORE}/${CORE} · answers ${ANSWERS}/${ANSWERS} → CONFORMANT`)
  const report = parse(readFileSync(path.join(service.dataDir, 'r.yaml'), 'utf8'))
  expect(report).toMatchObject({
    kind: 'ConformanceReport',
    implementation: { name: 'Array Surveys', version: '4.2', url },
    result: 'conformant',
  })
  expect(report.profiles[0]).toEqual({
    name: 'core',
    core: { result: 'success', statistics: { Passed: CORE, Failed: 0, Skipped: 0 }, failedTests: [], skippedTests: [] },
    summary: `core ${CORE}/${CORE}`,
  })
  const xml = readFileSync(path.join(service.dataDir, 'r.xml'), 'utf8')
  expect(xml).toContain(`<testsuite name="answers" tests="${ANSWERS}" failures="0" skipped="0">`)
})

test('a wrong one is not: exit 1, and a failure shows what was sent, what came, why it matters and where it is written', async () => {
  const [wrong] = wrongProviders
  const service = await createKit()
  const url = await serveProvider({ ...right, ...wrong?.methods({ isCancelled: false }) })
  const { exitCode, stdout } = await kit(service, url, '--report', 'r.yaml', '--junit', 'r.xml')
  expect(exitCode).toBe(1)
  expect(stdout.match(/^ {2}FAIL SP-\d\d /gm)).toEqual(['  FAIL SP-07 '])
  expect(stdout).toContain(
    [
      '       sent   GetSurvey {"owner":{"external_id":"u-1"},"survey_id":"1003"}',
      '       got    PERMISSION_DENIED "not yours"',
      '       wrong  GetSurvey is PERMISSION_DENIED, not NOT_FOUND (run 1 of 10)',
      '       why    whoever can tell them apart learns which ids exist, and whose they are not',
      '       see    docs/provider-conformance.md#sp-07',
    ].join('\n'),
  )
  expect(stdout).toContain(`core ${CORE - 1}/${CORE} · answers ${ANSWERS}/${ANSWERS} → NOT CONFORMANT\n`)
  expect(parse(readFileSync(path.join(service.dataDir, 'r.yaml'), 'utf8'))).toMatchObject({
    result: 'not conformant',
    profiles: [{ core: { result: 'failure', failedTests: ['SP-07'] } }, { core: { result: 'success' } }],
  })
  expect(readFileSync(path.join(service.dataDir, 'r.xml'), 'utf8')).toMatch(
    /name="SP-07 [^>]+><failure message="GetSurvey is PERM/,
  )
})

test('what is wrong with an answer is shown with the call that brought it; a text that is not there is called empty', async () => {
  const service = await createKit()
  const halves = wrongProviders.find(({ fault }) => fault === 'gives stars in halves')
  const getSurvey: typeof right.getSurvey = async (request) => {
    const found = await right.getSurvey(request)
    return { ...found, ...(found.survey && { survey: { ...found.survey, hash: '' } }) }
  }
  const url = await serveProvider({ ...right, ...halves?.methods({ isCancelled: false }), getSurvey })
  const { stdout } = await kit(service, url, '--only', 'SP-11,SP-41')
  expect(stdout).toMatch(/wrong {2}the hash of survey 1001 is: empty at position 1, not \S+ \(run 1 of 10\)/)
  expect(stdout).toMatch(/sent {3}ListAnswers [^\n]+"limit":1000}\n {7}got {4}OK \{"answers":\[/)
})

test('what a provider does not claim is not claimed, and not passed; asked for by name it is not conformant', async () => {
  const service = await createKit({ ...fixtures, answers: undefined })
  const url = await serveProvider({ ...right, ...withoutAnswers })
  const { exitCode, stdout } = await kit(service, url, '--report', 'r.yaml')
  expect(exitCode).toBe(0)
  expect(stdout).toContain('\nanswers: not claimed\n')
  expect(stdout).toMatch(new RegExp(`\\ncore ${CORE}/${CORE} · answers not claimed → CONFORMANT\\n$`))
  const report = parse(readFileSync(path.join(service.dataDir, 'r.yaml'), 'utf8'))
  expect(report.profiles[1].core).toMatchObject({
    result: 'not claimed',
    statistics: { Passed: 0, Failed: 0, Skipped: ANSWERS },
  })
  const demanded = await kit(service, url, '--profile', 'core,answers', '--only', 'SP-01')
  expect(demanded.exitCode).toBe(1)
  expect(demanded.stdout).toMatch(/ · answers not claimed → NOT CONFORMANT\n$/)
})

test('tests that were left out are no verdict: PARTIAL', async () => {
  const service = await createKit()
  const url = await serveProvider(right)
  const one = await service.json<object>([
    'conformance',
    'provider',
    '--url',
    url,
    '--fixtures',
    'f.json',
    '--only',
    'SP-07',
  ])
  expect(one).toMatchObject({ result: 'partial', profiles: [{ core: { statistics: { Passed: 1 } } }, {}] })
  const core = await kit(service, url, '--profile', 'core', '--only', 'SP-01,SP-31')
  expect(core.exitCode).toBe(0)
  expect(core.stdout).toMatch(/core 1\/1, \d+ left out · answers 0\/0, \d+ left out → PARTIAL\n$/)
})

test('over mTLS the kit shows the certificate that RPC_TLS_CERT names', async () => {
  const service = await createKit()
  const authority = createAuthority()
  const material = (name: string) => materialOf(authority, authority.issue(name))
  const url = await serveProvider(right, { tls: material('DNS:localhost') })
  const args = ['conformance', 'provider', '--url', url, '--fixtures', 'f.json', '--only', 'SP-01']
  const env = pemFiles(service.dataDir, material('DNS:survey.test'))
  expect((await service.run(args, { env })).exitCode).toBe(0)
  expect(await service.run(args)).toMatchObject({
    exitCode: 78,
    stderr: expect.stringContaining('RPC_TLS_CERT must name'),
  })
})

test('a provider that cannot be reached is one line, and exit 2', async () => {
  const service = await createKit()
  expect(await kit(service, 'unix:/nowhere/p.sock')).toEqual({
    exitCode: 2,
    stdout: '',
    stderr: 'survey-auth: no provider answers at unix:/nowhere/p.sock: UNAVAILABLE connect ENOENT /nowhere/p.sock\n',
  })
})

test.each([
  ['no JSON', '{', /^survey-auth: f\.json cannot be used: .*JSON/],
  ['nobody', '{}', /owners: .*; missing_owner: .*; missing_survey: /],
  ['an owner without ids', { ...fixtures, missing_owner: {} }, /: missing_owner: needs external_id or user_id\n/],
  [
    'few surveys',
    { ...fixtures, owners: [{ external_id: 'u', surveys: [1] }, fixtures.owners[1]] },
    /: owners\.0\.surveys: /,
  ],
  ['a missing survey that is there', { ...fixtures, missing_survey: 1003 }, /: missing_survey: an owner has it\n/],
  ['a misspelt member', { ...fixtures, answer: {} }, /"answer"/],
  ['one owner twice', { ...fixtures, missing_owner: { external_id: 'u-2' } }, /: two owners have the same id\n/],
  [
    'answers of somebody else',
    { ...fixtures, answers: { survey_id: 1003, count: 23 } },
    /: answers\.survey_id: the first owner does/,
  ],
  [
    'no answers, which are claimed',
    { ...fixtures, answers: undefined },
    /: answers: is needed, because the provider claims them/,
  ],
])('fixtures with %s are refused with what is wrong, and exit 2', async (_, content, said) => {
  const service = await createKit(content)
  const { exitCode, stdout, stderr } = await kit(service, await serveProvider(right))
  expect({ exitCode, stdout }).toEqual({ exitCode: 2, stdout: '' })
  expect(stderr).toMatch(said)
})

test.each([
  ['a test that there is not', ['--only', 'SP-99'], /--only SP-99 is none of SP-01, /],
  ['a profile that there is not', ['--profile', 'all'], /--profile all is none of core, answers/],
  [
    'a report that cannot be written',
    ['--only', 'SP-01', '--report', '/nowhere/r.yaml'],
    /cannot write \/nowhere\/r\.yaml/,
  ],
])('%s is exit 2', async (_, args, said) => {
  const service = await createKit()
  const { exitCode, stderr } = await kit(service, await serveProvider(right), ...args)
  expect(exitCode).toBe(2)
  expect(stderr).toMatch(said)
})
