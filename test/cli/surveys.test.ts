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

test('a number written in another way, or one that only apps would read, is no reason to refuse an import', async () => {
  const service = await serviceWithUsers({ isRunning: false })
  const input = '{"title": "a", "id": 1.20e1, "endTime": 0e9, "startTime": -0, "team_id": 12345678901234567890}'
  const { exitCode, stderr } = await service.run(['survey', 'import', '-', '--owner', 'ann'], { input })
  expect(exitCode).toBe(0)
  expect(stderr).toContain('standard input: team_id: dropped: a number in it has more digits than can be kept\n')
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

test('a member that is not known is kept, and named: it may be misspelt', async () => {
  const service = await serviceWithUsers({ isRunning: false })
  const question = { type: 'radio', requierd: true, options: [{ txt: 'A' }], subTitles: [] }
  const odd = { title: 'x', sceen: 3, page_count: 1, creator_user_id: 7, pages: [{ questions: [question, question] }] }
  const { exitCode, stderr } = await importAs('ann', service, [odd, { title: 'y', ...many(12) }])
  expect(exitCode).toBe(0)
  const named = ['pages[].questions[].requierd', 'pages[].questions[].options[].txt', '0', '1', '2', '3', '4', '5', '6']
  expect(stderr).toContain(
    `surveys.json: not known by name, kept as they came: sceen, ${named.join(', ')} and 5 more\n`,
  )
  const exported = await service.json<object[]>(['survey', 'export'])
  expect(exported).toMatchObject([
    { sceen: 3, pages: [{ questions: [{ requierd: true, required: false, options: [{ txt: 'A', text: '' }] }, {}] }] },
    { title: 'y', ...many(12) },
  ])
})

test('a member that questions of its type do not have is dropped and named', async () => {
  const service = await serviceWithUsers({ isRunning: false })
  const all = { starNum: 5, starBeginNum: 1, subTitles: [{ id: 'r', text: 'Row' }] }
  const types = ['radio', 'star', 'matrix_radio', 'matrix_star', 'radio']
  const questions = types.map((type, at) => ({ id: `q${at}`, type, ...all }))
  const { exitCode, stderr } = await importAs('ann', service, { title: 'x', pages: [{}, { questions }] })
  expect(exitCode).toBe(0)
  expect([...stderr.matchAll(/: pages\[\]\.questions\[\]\.(.+)$/gm)].map(([, said]) => said)).toEqual([
    'starNum: dropped: a question of type radio has none, 2 times',
    'starBeginNum: dropped: a question of type radio has none, 2 times',
    'subTitles: dropped: a question of type radio has none, 2 times',
    'subTitles: dropped: a question of type star has none',
    'starNum: dropped: a question of type matrix_radio has none',
    'starBeginNum: dropped: a question of type matrix_radio has none',
  ])
  const [survey] = await service.json<{ pages: { questions: Record<string, unknown>[] }[] }[]>(['survey', 'export'])
  const held = survey?.pages[1]?.questions.map((question) => Object.keys(all).filter((member) => member in question))
  expect(held).toEqual([[], ['starNum', 'starBeginNum'], ['subTitles'], Object.keys(all), []])
})

describe('what other systems of this dialect send', () => {
  const published = JSON.parse(readFileSync('test/harness/published-survey.json', 'utf8'))
  const envelope = (data: unknown) => ({ code: 'OK', error: { type: '' }, data, request_id: 'r' })
  const lines = (...values: readonly unknown[]) => values.map((value) => JSON.stringify(value)).join('\n\n')
  const other = { ...published, id: 7, title: 'another' }

  test('is stored as it is, be it a record, an answer, an array, or one on each line', async () => {
    const service = await serviceWithUsers({ isRunning: false })
    const one = [{ ...published, creator_user_id: 0 }]
    const both = [{ ...other, creator_user_id: 0 }, ...one]
    for (const [input, stored] of [
      [JSON.stringify(published), one],
      [JSON.stringify(envelope(published), null, 2), one],
      [JSON.stringify(envelope({ total: 2, list: [published, other] })), both],
      [JSON.stringify([envelope(published), other]), both],
      [`${lines(envelope(published), other)}\r\n`, both],
    ] as const) {
      const { exitCode, stderr } = await service.run(['survey', 'import', '-', '--owner', 'ann'], { input })
      expect({ exitCode, stderr }).toMatchObject({ exitCode: 0, stderr: expect.not.stringMatching(/read|dropped/) })
      expect(await service.json(['survey', 'export'])).toEqual(stored)
      await service.run(['survey', 'delete', '7', '292192'])
    }
  })

  test('is read as what it stands for, and each kind of change is named once', async () => {
    const service = await serviceWithUsers({ isRunning: false })
    const question = (members: object) => ({ type: 'radio', title: 'q', ...members })
    const input = JSON.stringify({
      id: '12',
      hash: 'e9b8',
      scene: 2,
      title: 2024,
      prefix: null,
      state: '2',
      startTime: '0',
      endTime: null,
      started_at: '2024-06-01 00:00:00',
      end_at: '2024-07-01 00:00:00',
      createTime: '1524104575',
      template_id: '5',
      pages: [
        {
          id: 1,
          index: 0,
          questions: [
            question({
              index: '1',
              required: 1,
              sub_type: 0,
              goto: null,
              options: [{ text: 1, exclusive: '1', goto: {} }],
            }),
            question({ index: '2', required: '0', sub_type: 3, goto: [], options: null, hidden: 0, refer: null }),
            question({ type: 'star', starNum: '10', starBeginNum: '', maxlength: '', validate: null }),
            question({ type: 'text_multiple', goto: { id: 'p-2' }, maxRow: '2' }),
          ],
        },
      ],
    })
    const { exitCode, stderr } = await service.run(['survey', 'import', '-', '--owner', 'ann'], { input })
    expect(exitCode).toBe(0)
    const said = [...stderr.matchAll(/^standard input: (.+)$/gm)].map(([, line]) => line)
    const inQuestions = (line: string) => `pages[].questions[].${line}`
    expect(said.toSorted()).toEqual(
      [
        'id: text read as a number',
        'scene: 0 read as 1, or 2 as 3',
        'title: a number read as text',
        'prefix: null read as none',
        'state: text read as a number',
        'startTime: text read as a number',
        'endTime: null read as none',
        'createTime: text read as a number',
        'template_id: text read as a number',
        'pages[].id: a number read as text',
        'pages[].index: a number read as text',
        inQuestions('index: text read as a number, 2 times'),
        inQuestions('required: 0 or 1 read as true or false, 2 times'),
        inQuestions('sub_type: a number read as text'),
        inQuestions('goto: null read as none'),
        inQuestions('options: null read as none'),
        inQuestions('options[].text: a number read as text'),
        inQuestions('options[].exclusive: 0 or 1 read as true or false'),
        inQuestions('hidden: 0 or 1 read as true or false'),
        inQuestions('starNum: text read as a number'),
        inQuestions('type: text_multiple read as blanks'),
      ].toSorted(),
    )
    expect(await service.json(['survey', 'export'])).toMatchObject([
      {
        id: 12,
        hash: 'e9b8',
        scene: '3',
        title: '2024',
        prefix: '',
        state: 2,
        startTime: 1_717_171_200,
        endTime: 1_719_763_200,
        started_at: '2024-06-01 00:00:00',
        end_at: '2024-07-01 00:00:00',
        createTime: 1_524_104_575,
        template_id: 5,
        pages: [
          {
            id: '1',
            index: '0',
            questions: [
              { index: 1, required: true, sub_type: '', goto: '', options: [{ text: '1', exclusive: true, goto: {} }] },
              { index: 2, required: false, sub_type: '3', goto: '', options: [], hidden: false, refer: null },
              { starNum: 10, starBeginNum: 1, maxlength: '', validate: null },
              { type: 'blanks', goto: { id: 'p-2' }, maxRow: '2' },
            ],
          },
        ],
      },
    ])
  })

  const deep = (levels: number): unknown => (levels === 0 ? 1 : [deep(levels - 1)])
  test.each([
    [
      { title: 'a', started_at: '2024-02-31 00:00:00' },
      ': started_at: must be YYYY-MM-DD HH:MM:SS, a time in Asia/Shanghai',
    ],
    [{ title: 'a', end_at: 5 }, ': end_at: must be YYYY-MM-DD HH:MM:SS, a time in Asia/Shanghai'],
    [envelope({}), ': title: is missing'],
    [{ ...envelope({}), code: 'NotFound' }, ' holds an answer that failed: NotFound'],
    [envelope({ total: 0, list: [] }), ' holds no survey'],
    [{ title: 'a', pages: [{ questions: [{ type: 'quiz' }] }] }, ': pages[0].questions[0].type: invalid option'],
    [
      { title: 'a', pages: [{}, { odd: { deep: deep(19) } }] },
      `: pages[1].odd.deep${'[0]'.repeat(18)}: nested more than 20 deep`,
    ],
    [{ title: 'a', odd: deep(4_000) }, `: odd${'[0]'.repeat(19)}: nested more than 20 deep`],
    [deep(4_000), ': survey: invalid input: expected object, received array'],
    [{ title: 'a', odd: { ['x'.repeat(129)]: 1 } }, ': odd: a name is longer than 128 characters'],
    [
      { title: 'a', goto: 5, pages: [{ questions: [{ type: 'text', goto: true }] }] },
      ': pages[0].questions[0].goto: must be text or an object',
    ],
  ])('is refused with its place when it cannot be read: row %#', async (json, because) => {
    const service = await createProcess()
    const input = JSON.stringify(json)
    const { exitCode, stderr } = await service.run(['survey', 'import', '-', '--owner', 'ann'], { input })
    expect(stderr).toContain(`survey-auth: standard input${because}`)
    expect(exitCode).toBe(1)
  })

  test('is refused with its line, if there is one on each', async () => {
    const service = await createProcess()
    for (const [third, because] of [
      ['{"title": "c",}', ' is not JSON: line 3, column 15'],
      ['{"title": ', ' is not JSON: line 3'],
      ['{"title": "c", "title": "d"}', ': "title" is given twice: line 3, column 16'],
      ['{}', ', survey 3: title: is missing'],
    ]) {
      const input = `{"title": "a"}\n{"title": "b"}\n${third}\n{"title": "d"}`
      const { exitCode, stderr } = await service.run(['survey', 'import', '-', '--owner', 'ann'], { input })
      expect({ exitCode, stderr }).toEqual({ exitCode: 1, stderr: `survey-auth: standard input${because}\n` })
    }
  })

  test('a time that contradicts the other one of its pair is dropped and named', async () => {
    const service = await serviceWithUsers({ isRunning: false })
    const { stderr } = await importAs('ann', service, { ...published, started_at: '2024-06-02 00:00:00' })
    expect(stderr).toContain('surveys.json: started_at: dropped: it is another time than startTime\n')
    expect(await service.json(['survey', 'export'])).toMatchObject([{ started_at: '2024-06-01 00:00:00' }])
  })
})

test('a dry run says what would be stored and stores nothing; --quiet says nothing', async () => {
  const service = await serviceWithUsers({ isRunning: false })
  const input = JSON.stringify([{ id: 7, title: 'a' }, { title: 5 }])
  const importing = (...options: readonly string[]) =>
    service.run(['survey', 'import', '-', '--owner', 'ann', ...options], { input })
  const dry = await importing('--dry-run', '--json')
  expect(JSON.parse(dry.stdout)).toEqual([
    { survey_id: 7, hash: '', title: 'a', state: 1 },
    { survey_id: null, hash: '', title: '5', state: 1 },
  ])
  expect(dry).toMatchObject({
    exitCode: 0,
    stderr: 'standard input: title: a number read as text\n',
  })
  expect(await ids(service)).toEqual([])
  expect(await importing('--quiet')).toEqual({ exitCode: 0, stdout: '', stderr: '' })
  expect(await ids(service)).toEqual([7, 8])
  expect((await importing('--quiet', '--json')).stdout).toContain('"survey_id": 9')
})

test('a list can be narrowed by state and title and cut short, and one survey can be shown', async () => {
  const service = await serviceWithUsers({ isRunning: false })
  const surveys = ['Lunch a', 'Dinner', 'lunch b', 'LUNCH c'].map((title, at) => ({ title, state: at === 3 ? 3 : 2 }))
  await importAs('ann', service, surveys)
  await importAs('bob', service, { title: 'Lunch of bob' })
  expect(await ids(service, '--title', 'lunch')).toEqual([1, 3, 4, 5])
  expect(await ids(service, '--title', 'lunch', '--state', 'collecting')).toEqual([1, 3])
  expect(await ids(service, '--title', 'lunch', '--owner', 'ann', '--limit', '2')).toEqual([1, 3])
  const none = await service.run(['survey', 'list', '--title', 'tea'])
  expect(none).toEqual({ exitCode: 0, stdout: '', stderr: '' })

  const shown = await service.json(['survey', 'show', '3'])
  expect([shown]).toEqual((await service.json<unknown[]>(['survey', 'export'])).slice(2, 3))
  const { stdout } = await service.run(['survey', 'show', '5'])
  expect(stdout).toMatch(/^survey_id +5\nhash +[0-9a-f]{4}\ntitle +Lunch of bob\nstate +draft\nowner +bob\npages +0\n/)
  expect(await service.run(['survey', 'show', '6'])).toMatchObject({
    exitCode: 1,
    stderr: 'survey-auth: no such survey: 6\nsee them with: survey-auth survey list\n',
  })
})

test.each(readdirSync('examples/surveys'))('the example %s is stored as it is', async (name) => {
  const service = await serviceWithUsers({ isRunning: false })
  const example = JSON.parse(readFileSync(path.join('examples/surveys', name), 'utf8'))
  const { exitCode, stderr } = await importAs('ann', service, example)
  expect({ exitCode, stderr }).toMatchObject({ exitCode: 0, stderr: expect.not.stringMatching(/read|dropped|kept/) })
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
  expect(stderr).toContain('kept as they came: \ufffd]0;y\ufffd\ufffd2J\n')
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
    expect(deleted).toEqual({ exitCode: 0, stdout: 'SURVEY_ID\n7\n3\n', stderr: '' })
    expect(await service.json(['survey', 'delete', '7', '7'])).toEqual([{ survey_id: 7 }])
    expect(await service.json(['survey', 'delete', '7', '4'])).toEqual([{ survey_id: 7 }, { survey_id: 4 }])
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
