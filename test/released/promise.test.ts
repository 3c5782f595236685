// What the newest release promised (promise.json) is kept: all that was there is there, and asks for no more than it did.
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { expect, test, vi } from 'vitest'
import { createProgram } from '../../bin/main.js'
import { packageVersion } from '../../bin/package-root.js'
import { createMetrics } from '../../bin/telemetry/metrics.js'
import { printedMembers } from './printed.js'
import { broken, commandsOf, type Promised, promisedHere } from './promise.js'

vi.setConfig({ testTimeout: 120_000 }) // the first test runs all commands

const RELEASED = new URL('promise.json', import.meta.url)
/** Where write.js finds it. */
const HERE = new URL('../results/promise.json', import.meta.url)

let made: ReturnType<typeof make> | undefined
const promised = () => {
  made ??= make()
  return made
}

async function make() {
  const here = await promisedHere(await printedMembers())
  mkdirSync(new URL('.', HERE), { recursive: true })
  writeFileSync(HERE, JSON.stringify(here))
  return here
}

test('what the newest release of this major version promised is kept', async () => {
  const here = await promised()
  if (!existsSync(RELEASED)) return
  const { version, ...released } = JSON.parse(readFileSync(RELEASED, 'utf8')) as { version: string }
  const isOfThisMajor = version.split('.')[0] === packageVersion().split('.')[0]
  if (isOfThisMajor) expect(broken(released, here)).toEqual([])
})

test('every command that takes --json has been asked what it prints', async () => {
  const { commands } = await promised()
  const printing = commandsOf(createProgram()).filter(([, { options }]) =>
    options.some(({ long }) => long === '--json'),
  )
  const unknown = printing.filter(([words]) => commands[words]?.prints.length === 0)
  expect(unknown.map(([words]) => words)).toEqual([])
})

test('every metric of ours is promised with the labels that it was given', async () => {
  const described = (await createMetrics().text()).matchAll(/^# HELP (survey_auth_\w+)/gm)
  const series = Object.keys((await promised()).metrics)
  const unknown = [...described].filter(([, name = '']) => !series.some((one) => one.startsWith(name)))
  expect(unknown).toEqual([])
})

type Change = (before: Promised) => Promised | undefined

/** A copy of a promise in which what is at this place is what `change` makes of it; undefined takes it away. */
function changed(promise: Promised, [name = '', ...inside]: readonly string[], change: Change): Promised {
  const members = promise as Readonly<Record<string, Promised>>
  const before = members[name] as Promised
  const after = inside.length > 0 ? changed(before, inside, change) : change(before)
  const { [name]: _, ...others } = members
  return after === undefined ? others : { ...others, [name]: after }
}

const gone = () => undefined
const without = (one: string) => (list: Promised) => (list as readonly string[]).filter((other) => other !== one)
const and = (one: string) => (list: Promised) => [...(list as readonly string[]), one]
const LIST = 'GET /api/surveys'

test.each<[string, readonly string[], Change, string]>([
  ['a variable is renamed', ['variables', 'CODE_TTL_SECONDS'], gone, 'variables › CODE_TTL_SECONDS is gone'],
  ['a default is another', ['variables', 'PORT'], () => '8081', 'variables › PORT was 8080 and is 8081'],
  ['an exit code is another', ['exitCodes', 'unavailable'], () => 1, 'exitCodes › unavailable was 69 and is 1'],
  ['a command is renamed', ['commands', 'app list'], gone, 'commands › app list is gone'],
  [
    'an option is gone',
    ['commands', 'app create', 'takes'],
    without('--logo VALUE'),
    'commands › app create › takes: --logo VALUE is gone',
  ],
  [
    'an option has become necessary',
    ['commands', 'app create', 'needs'],
    and('--logo'),
    'commands › app create › needs: --logo is new',
  ],
  [
    'a member of what a command prints is gone',
    ['commands', 'app list', 'prints'],
    without('[].appid string'),
    'commands › app list › prints: [].appid string is gone',
  ],
  [
    'a label of a metric is gone',
    ['metrics', 'survey_auth_refused_total'],
    without('reason'),
    'metrics › survey_auth_refused_total: reason is gone',
  ],
  ['a kind of event is gone', ['auditEvents'], without('code.issued'), 'auditEvents: code.issued is gone'],
  [
    'a released migration is edited',
    ['migrations', 'token in SQLite', '1'],
    () => 'other',
    'migrations › token in SQLite › 1 was',
  ],
  [
    'a parameter has become necessary',
    ['http', LIST, 'needs'],
    and('page'),
    'http › GET /api/surveys › needs: page is new',
  ],
  [
    'a parameter is not understood',
    ['http', LIST, 'takes'],
    without('page'),
    'http › GET /api/surveys › takes: page is gone',
  ],
  [
    'a member of an answer is gone',
    ['http', LIST, 'answers'],
    without('data.total integer'),
    'http › GET /api/surveys › answers: data.total integer is gone',
  ],
  [
    'a failure is new to an endpoint',
    ['http', LIST, 'errors'],
    and('too_old'),
    'http › GET /api/surveys › errors: too_old is new',
  ],
  [
    'an action is another',
    ['errorTypes', 'invalid_token', 'action'],
    () => 'retry',
    'errorTypes › invalid_token › action was',
  ],
  ['a path is gone', ['paths'], without('GET /connect/apps'), 'paths: GET /connect/apps is gone'],
])('a promise is broken where %s', async (_, place, change, line) => {
  const here = await promised()
  expect(broken(here, changed(here, place, change))).toEqual([expect.stringContaining(line)])
})

test.each<[string, readonly string[], Change]>([
  ['a variable', ['variables', 'NEW'], () => ''],
  ['a migration', ['migrations', 'token in SQLite', '2'], () => 'digest'],
  ['an endpoint that needs a parameter', ['http', 'GET /api/new'], () => ({ needs: ['appid'] })],
  ['an option', ['commands', 'app create', 'takes'], and('--new')],
  ['a label', ['metrics', 'survey_auth_refused_total'], and('new')],
  ['a member', ['http', LIST, 'answers'], and('data.new string')],
])('%s may be added', async (_, place, change) => {
  const here = await promised()
  expect(broken(here, changed(here, place, change))).toEqual([])
})
