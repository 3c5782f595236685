// Many or large surveys by command line, with a running server and without.
import { execFileSync } from 'node:child_process'
import { readdirSync, readFileSync, truncateSync, writeFileSync } from 'node:fs'
import { writeFile } from 'node:fs/promises'
import path from 'node:path'
import { describe, expect, test, vi } from 'vitest'
import type { CommandResult } from '../harness/command-host.js'
import { createProcess, type ServiceProcess } from '../harness/process.js'
import { MAX_SURVEY_BYTES, smallSurvey, surveyOf } from '../harness/sample-surveys.js'

vi.setConfig({ testTimeout: 120_000 }) // each test spawns several processes

const places = [
  { place: 'with a running server', isRunning: true },
  { place: 'without a server', isRunning: false },
]

async function serviceWithUsers({ isRunning }: { isRunning: boolean }, env = {}): Promise<ServiceProcess> {
  const service = await createProcess(env)
  for (const username of ['ann', 'bob']) {
    await service.json(['user', 'create', '--username', username, '--password-stdin'], { input: 'correct horse\n' })
  }
  if (isRunning) await service.start()
  return service
}

function importAs(owner: string, service: ServiceProcess, surveys: unknown): Promise<CommandResult> {
  const file = path.join(service.dataDir, 'surveys.json')
  writeFileSync(file, JSON.stringify(surveys))
  return service.run(['survey', 'import', file, '--owner', owner])
}

async function ids(service: ServiceProcess, ...filter: readonly string[]): Promise<number[]> {
  const rows = await service.json<{ survey_id: number }[]>(['survey', 'list', ...filter])
  return rows.map((row) => row.survey_id)
}

const many = (count: number) => Array.from({ length: count }, (_, at) => ({ ...smallSurvey(), id: at + 1 }))

test('a file that is too large is refused unread', async () => {
  const service = await createProcess()
  const file = path.join(service.dataDir, 'sparse.json')
  writeFileSync(file, '[]')
  truncateSync(file, 256 * 1024 * 1024 + 1)
  const { exitCode, stderr } = await service.run(['survey', 'import', file, '--owner', 'ann'])
  expect({ exitCode, stderr }).toEqual({
    exitCode: 1,
    stderr: `survey-auth: ${file} is longer than 268435456 bytes\n`,
  })
})

test('a device that has no end is read as far as an import may be long', async () => {
  const service = await createProcess()
  expect(await service.run(['survey', 'import', '/dev/zero', '--owner', 'ann'])).toEqual({
    exitCode: 1,
    stdout: '',
    stderr: 'survey-auth: /dev/zero is longer than 268435456 bytes\n',
  })
})

test('an import may come from a pipe that has a name', async () => {
  const service = await serviceWithUsers({ isRunning: false })
  const pipe = path.join(service.dataDir, 'pipe')
  execFileSync('mkfifo', [pipe])
  const written = writeFile(pipe, JSON.stringify(many(3)))
  expect(await service.run(['survey', 'import', pipe, '--owner', 'ann'])).toMatchObject({ exitCode: 0 })
  await written
  expect(await ids(service)).toEqual([1, 2, 3])
})

test.each([
  ['{"title": "a"\n "pages": []}', ': line 2, column 2'],
  ['[{"title": "a",}]', ': line 1, column 16'],
  ['title', ''], // Node does not say at which position
])('an import of %j, which is not JSON, says where, if Node does', async (input, where) => {
  const service = await createProcess()
  const { exitCode, stderr } = await service.run(['survey', 'import', '-', '--owner', 'ann'], { input })
  expect({ exitCode, stderr }).toEqual({ exitCode: 1, stderr: `survey-auth: standard input is not JSON${where}\n` })
})

test.each([
  ['{"title": "a", "title": "a"}', '"title" is given twice: line 1, column 16'],
  ['{"title": "a", "t\\u0069tle": "b"}', '"title" is given twice: line 1, column 16'],
  [
    '{"title": "a",\n"pages": [{}, {"questions": [{"type": "text", "goto": "", "goto": "p"}]}]}',
    '"goto" is given twice: line 2, column 59',
  ],
  [
    '{"title": "a", "more": {"x": "{\\"", "y": ["x", "x"], "z": {"x": 1}, "x": 2}}',
    '"x" is given twice: line 1, column 69',
  ],
  ...['9007199254740993', '1e400', '1.00000000000000000001', '1e-400'].map((id) => [
    `{"title": "a", "id": ${id}}`,
    'id: has more digits than can be kept',
  ]),
  ['{"title": "a", "id": 1.5}', 'id: invalid input: expected int, received number'],
  ['{"title": "a", "id": 9007199254740992}', 'id: too big: expected int to be <=9007199254740991'],
  ['{"title": "a", "endTime": 1.00000000000000000001}', 'endTime: has more digits than can be kept'],
  ['{"title": "a", "scene": 3.0000000000000000001}', 'scene: has more digits than can be kept'],
])('an import of %s is refused, not stored in part or rounded', async (input, because) => {
  const service = await createProcess()
  const { exitCode, stderr } = await service.run(['survey', 'import', '-', '--owner', 'ann'], { input })
  expect({ exitCode, stderr }).toEqual({ exitCode: 1, stderr: `survey-auth: standard input: ${because}\n` })
})

test('a number written in another way, or one that is not read, is no reason to refuse an import', async () => {
  const service = await serviceWithUsers({ isRunning: false })
  const input = '{"title": "a", "id": 1.20e1, "endTime": 0e9, "startTime": -0, "team_id": 12345678901234567890}'
  const { exitCode, stderr } = await service.run(['survey', 'import', '-', '--owner', 'ann'], { input })
  expect(exitCode).toBe(0)
  expect(stderr).toContain('team_id is not a member of a survey and was ignored')
  expect(await ids(service)).toEqual([12])
})

test.each(['', ' \n', '\ufeff\n'])('an import of nothing, %j, says so', async (input) => {
  const service = await createProcess()
  const { exitCode, stderr } = await service.run(['survey', 'import', '-', '--owner', 'ann'], { input })
  expect({ exitCode, stderr }).toEqual({ exitCode: 1, stderr: 'survey-auth: standard input is empty\n' })
})

test.each([
  ['a folder', '.', 'it is a folder'],
  ['a file that is not there', 'none.json', 'there is no such file'],
])('an import of %s says so', async (_, file, why) => {
  const service = await createProcess()
  const { exitCode, stderr } = await service.run(['survey', 'import', file, '--owner', 'ann'])
  expect({ exitCode, stderr }).toEqual({ exitCode: 1, stderr: `survey-auth: cannot read ${file}: ${why}\n` })
})

test('an unknown member is named and the rest is stored; an export has no unknown member', async () => {
  const service = await serviceWithUsers({ isRunning: false })
  const question = { type: 'radio', requierd: true, options: [{ txt: 'A' }], subTitles: [] }
  const odd = { title: 'x', sceen: 3, page_count: 1, creator_user_id: 7, pages: [{ questions: [question] }] }
  const { exitCode, stderr } = await importAs('ann', service, odd)
  expect(exitCode).toBe(0)
  expect(
    [...stderr.matchAll(/: (\S+) is not a member of a survey and was ignored/g)].map(([, member]) => member),
  ).toEqual(
    [...['pages[0].questions[0].requierd', 'pages[0].questions[0].options[0].txt', 'sceen']].toSorted(
      (a, b) => stderr.indexOf(a) - stderr.indexOf(b),
    ),
  )
  const many = Array.from({ length: 12 }, () => ({ title: 'x', sceen: 3, pages: [] }))
  expect((await importAs('ann', service, many)).stderr).toContain(
    'survey 10: sceen is not a member of a survey and was ignored\nand 2 more',
  )
  const exported = await service.json(['survey', 'export'])
  expect((await importAs('ann', service, exported)).stderr).not.toContain('ignored')
})

test('a member that questions of its type do not have is named and the rest is stored', async () => {
  const service = await serviceWithUsers({ isRunning: false })
  const all = { starNum: 5, starBeginNum: 1, subTitles: [{ id: 'r', text: 'Row' }] }
  const questions = ['radio', 'star', 'matrix_radio', 'matrix_star'].map((type) => ({ id: type, type, ...all }))
  const { exitCode, stderr } = await importAs('ann', service, { title: 'x', pages: [{}, { questions }] })
  expect(exitCode).toBe(0)
  expect([...stderr.matchAll(/: (pages.+)$/gm)].map(([, said]) => said)).toEqual(
    ['0].starNum', '0].starBeginNum', '0].subTitles', '1].subTitles', '2].starNum', '2].starBeginNum'].map(
      (member) =>
        `pages[1].questions[${member} is not a member of a question of type ${questions[Number(member[0])]?.type} and was ignored`,
    ),
  )
  const [survey] = await service.json<{ pages: { questions: Record<string, unknown>[] }[] }[]>(['survey', 'export'])
  const held = survey?.pages[1]?.questions.map((question) => Object.keys(all).filter((member) => member in question))
  expect(held).toEqual([[], ['starNum', 'starBeginNum'], ['subTitles'], Object.keys(all)])
})

test.each(readdirSync('examples/surveys'))('the example %s is stored as it is', async (name) => {
  const service = await serviceWithUsers({ isRunning: false })
  const example = JSON.parse(readFileSync(path.join('examples/surveys', name), 'utf8'))
  const { exitCode, stderr } = await importAs('ann', service, example)
  expect({ exitCode, stderr }).toMatchObject({ exitCode: 0, stderr: expect.not.stringContaining('ignored') })
  expect(await service.json(['survey', 'export'])).toMatchObject([example].flat())
})

test('a draft may have an empty title, and the numbers of questions are those of the file', async () => {
  const service = await serviceWithUsers({ isRunning: false })
  const questions = [-1, 0].map((index) => ({ type: 'text', index }))
  await importAs('ann', service, { title: '', pages: [{ index: '0', questions }] })
  expect(await service.json(['survey', 'export'])).toMatchObject([{ title: '', pages: [{ index: '0', questions }] }])
})

test('the name of an unknown member does not change the terminal', async () => {
  const service = await serviceWithUsers({ isRunning: false })
  const { exitCode, stderr } = await importAs('ann', service, { title: 'x', '\u001b]0;y\u0007\u009b2J': 1, pages: [] })
  expect(stderr).toContain(': \ufffd]0;y\ufffd\ufffd2J is not a member of a survey and was ignored\n')
  expect({ exitCode, controls: stderr.match(/[^\P{Cc}\n]/gu) }).toEqual({ exitCode: 0, controls: null })
})

test.each([
  { what: 'nothing', words: [], exitCode: 2, stderr: "missing required argument 'survey_id'" },
  { what: 'what is no id', words: ['1', '-1'], exitCode: 2, stderr: "'-1' is invalid for argument 'survey_id'" },
  { what: 'what is no number', words: ['1', 'x'], exitCode: 2, stderr: "'x' is invalid for argument 'survey_id'" },
  { what: 'a number too large', words: ['9007199254740993'], exitCode: 2, stderr: 'from 1 to 9007199254740991' },
])('a deletion of $what is refused and deletes nothing', async ({ words, exitCode, stderr }) => {
  const service = await serviceWithUsers({ isRunning: false })
  await importAs('ann', service, many(2))
  const refused = await service.run(['survey', 'delete', ...words])
  expect(refused).toMatchObject({ exitCode, stderr: expect.stringContaining(stderr) })
  expect(await ids(service)).toEqual([1, 2])
})

describe.each(places)('$place', (where) => {
  test('an import may be larger than one call', async () => {
    const service = await serviceWithUsers(where)
    const surveys = Array.from({ length: 9 }, () => surveyOf(950_000))
    expect(await importAs('ann', service, surveys)).toMatchObject({ exitCode: 0 })
    expect(await ids(service)).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9])
  })

  test('the largest possible survey can be exported and imported again', async () => {
    const service = await serviceWithUsers(where)
    expect(await importAs('ann', service, surveyOf(MAX_SURVEY_BYTES))).toMatchObject({ exitCode: 0 })
    const { stdout: input } = await service.run(['survey', 'export'])
    expect(await service.run(['survey', 'import', '-', '--owner', 'ann'], { input })).toMatchObject({ exitCode: 0 })
    expect((await service.run(['survey', 'export'])).stdout).toBe(input)
  })

  const mistakes = [
    { what: 'a survey that is too large', last: surveyOf(MAX_SURVEY_BYTES + 1), why: 'at most 4000000 bytes encoded' },
    { what: 'what the contract forbids', last: smallSurvey('a\0b'), why: 'title: must not contain a NUL character' },
    {
      what: 'an end before the start',
      last: { ...smallSurvey(), startTime: 2, endTime: 1 },
      why: 'endTime is before startTime',
    },
    { what: 'an id that comes twice', last: { ...smallSurvey(), id: 7 }, why: 'an earlier survey has the id 7' },
  ]
  // A mistake is found before anything is sent: one shows that it is so with a server too.
  test.each(where.isRunning ? mistakes.slice(0, 1) : mistakes)(
    'nothing is stored of a file that ends with $what',
    async ({ last, why }) => {
      const service = await serviceWithUsers(where)
      const { exitCode, stderr } = await importAs('ann', service, [...many(1000), last])
      expect(stderr).toMatch(new RegExp(`surveys\\.json, survey 1001: ${why}\n$`))
      expect({ exitCode, ids: await ids(service) }).toEqual({ exitCode: 1, ids: [] })
    },
  )

  test('no new survey gets the id of one that comes later in the file', async () => {
    const service = await serviceWithUsers(where)
    const surveys = [...Array.from({ length: 1000 }, () => smallSurvey()), { ...smallSurvey(), id: 500 }]
    expect(await importAs('ann', service, surveys)).toMatchObject({ exitCode: 0 })
    expect(await ids(service)).toEqual(Array.from({ length: 1001 }, (_, at) => 500 + at))
  })

  test('a deletion removes the surveys that are named, and no others', async () => {
    const service = await serviceWithUsers(where)
    await importAs('ann', service, many(9))
    const deleted = await service.run(['survey', 'delete', '7', '3'])
    expect(deleted).toMatchObject({ exitCode: 0, stdout: '', stderr: expect.stringMatching(/^2 surveys deleted$/m) })
    expect(await service.json(['survey', 'delete', '7', '7'])).toEqual([{ survey_id: 7 }])
    expect((await service.run(['survey', 'delete', '7', '4'])).stderr).toMatch(
      /^1 survey deleted, 1 had been deleted already$/m,
    )
    const unknown = await service.run(['survey', 'delete', '1', '1999'])
    expect(unknown).toMatchObject({
      exitCode: 1,
      stderr: expect.stringMatching(/: there is no survey 1999\nsee them with: survey-auth survey list$/m),
    })
    expect(await ids(service)).toEqual([1, 2, 5, 6, 8, 9])
  })

  test('a conflict that is found too late leaves a part stored, and the command says so', async () => {
    const service = await serviceWithUsers(where)
    await importAs('bob', service, { ...smallSurvey(), id: 1001 })
    const { exitCode, stderr } = await importAs('ann', service, many(1001))
    expect(stderr).toContain(
      '1000 of 1001 are known to be stored, those with an id first\nimporting again replaces them, ',
    )
    expect(stderr).toContain('survey-auth: survey 1001 belongs to another user\n')
    expect({ exitCode, ids: (await ids(service, '--owner', 'ann')).length }).toEqual({ exitCode: 1, ids: 1000 })
  })

  test('a deletion that fails after its first call leaves a part deleted, and the command says so', async () => {
    const service = await serviceWithUsers(where)
    await importAs('ann', service, many(1001))
    const named = [...many(1000).map(({ id }) => String(id)), '1999']
    const { exitCode, stderr } = await service.run(['survey', 'delete', ...named])
    expect(stderr).toContain('the first 1000 of 1001 are deleted; see what is left with: survey-auth survey list\n')
    expect(stderr).toContain('survey-auth: there is no survey 1999\n')
    expect({ exitCode, ids: await ids(service) }).toEqual({ exitCode: 1, ids: [1001] })
  })
})
