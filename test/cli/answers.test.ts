// Answers to a survey by command line, with a running server and without.
import { readFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { describe, expect, test, vi } from 'vitest'
import { createProcess, type ServiceProcess } from '../harness/process.js'
import { smallSurvey } from '../harness/sample-surveys.js'

vi.setConfig({ testTimeout: 120_000 }) // each test runs several commands

const SURVEY = ['--survey', '7']

async function serviceWithSurvey(isRunning = false, survey: object = smallSurvey()): Promise<ServiceProcess> {
  const service = await createProcess()
  await service.json(['user', 'create', '--username', 'ann', '--password-stdin'], { input: 'correct horse\n' })
  await service.json(['survey', 'import', fileOf(service, JSON.stringify({ ...survey, id: 7 })), '--owner', 'ann'])
  if (isRunning) await service.start()
  return service
}

function fileOf(service: ServiceProcess, content: string): string {
  const file = path.join(service.dataDir, 'some.ndjson')
  writeFileSync(file, content)
  return file
}

/** Answers that were submitted at the end of 2025, unless they say otherwise. */
const lines = (...all: readonly (object | string)[]) =>
  all.map((one) => `${typeof one === 'string' ? one : JSON.stringify({ ended_at: 1767225600, ...one })}\n`).join('')

const importing = (service: ServiceProcess, content: string, ...options: readonly string[]) =>
  service.run(['survey', 'answers', 'import', fileOf(service, content), ...SURVEY, '--json', ...options])

const exported = async (service: ServiceProcess, ...options: readonly string[]) => {
  const { stdout, exitCode } = await service.run(['survey', 'answers', 'export', ...SURVEY, ...options])
  expect(exitCode).toBe(0)
  return stdout
}

const totals = ({ stdout }: { readonly stdout: string }) => JSON.parse(stdout) as Record<string, unknown>

const EMPTY = { answer: [] }

const answered = (text: string) => [{ id: 'p', questions: [{ id: 'q-1', type: 'text', text }] }]

describe.each([
  ['with a running server', true],
  ['without a server', false],
])('%s', (_, isRunning) => {
  test('answers come out as they went in, and again they change nothing', async () => {
    const service = await serviceWithSurvey(isRunning)
    const questions = [
      { id: 'q-1', type: 'radio', options: [{ id: 'o-1', checked: 1, text: '是' }] },
      { id: 'q-2', type: 'matrix_star', groups: [{ id: 'g', text: '3', options: [] }] },
      { id: 'q-3', type: 'blanks', blanks: [{ id: 'b', value: 'x\u202e' }] },
    ]
    const file = lines(
      { answer_id: 2, survey_id: 7, respondent_id: 'u-1', score: -1.5, answer: [{ id: 'p', questions }] },
      { answer_id: 5, respondent_id: 60000000001, started_at: '2026-01-01 08:00:00', ended_at: 1767225660, answer: [] },
    )
    const first = await importing(service, file)
    expect(totals(first)).toEqual({ read: 2, stored: 2, unchanged: 0, refused: 0, dry_run: false })
    expect(totals(await importing(service, file))).toMatchObject({ stored: 0, unchanged: 2, refused: 0 })
    const out = await exported(service)
    expect(out).not.toContain('\u202e')
    const [one, two] = out
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line))
    expect(one).toMatchObject({ answer_id: 2, survey_id: 7, openid: '', respondent_id: 'u-1', score: -1.5 })
    expect(one.answer[0].questions.map((question: object) => Object.keys(question).length)).toEqual([7, 7, 7])
    expect(one.answer[0].questions[2].blanks).toEqual([{ id: 'b', value: 'x\u202e' }])
    expect(two).toEqual({
      answer_id: 5,
      survey_id: 7,
      openid: '',
      respondent_id: '60000000001',
      started_at: '2026-01-01 08:00:00',
      ended_at: '2026-01-01 08:01:00',
      score: null,
      answer: [],
    })
    expect(totals(await importing(service, out))).toMatchObject({ stored: 0, unchanged: 2 })
    expect(await exported(service, '--after', '2')).toBe(`${out.trim().split('\n')[1]}\n`)
    expect(await exported(service, '--until', '2026-01-01T00:01:00Z')).toBe(`${out.trim().split('\n')[0]}\n`)
  })
})

test('each line that is refused is named with the reason, all others are stored, and the exit code is 3', async () => {
  const service = await serviceWithSurvey()
  await importing(service, lines({ answer_id: 5, answer: answered('five') }))
  const report = path.join(service.dataDir, 'refused.ndjson')
  const result = await importing(
    service,
    lines(
      { answer: answered('a') },
      '{"answer_id": 1',
      { answer: answered('b'), score: 'good' },
      { survey_id: 8, answer: [] },
      { ended_at: 'yesterday', answer: [] },
      { answer: [{ id: 'p', questions: [{ id: 'q', type: 'star', text: '4.5' }] }] },
      { answer_id: 5, answer: answered('another five') },
      { answer_id: 3, answer: [] },
      { started_at: 1767225660, ended_at: 1767225600, answer: [] },
      { answers: answered('misspelt') },
      { answer: answered('not submitted'), ended_at: '' },
      { answer: answered('c'), qq: 60000000001, ua: 'Mozilla' },
    ),
    '--report',
    report,
  )
  expect(result.exitCode).toBe(3)
  expect(totals(result)).toMatchObject({ read: 12, stored: 2, unchanged: 0, refused: 10 })
  expect(result.stderr).toContain('not stored: qq, ua')
  const refused = readFileSync(report, 'utf8')
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as { line: number; reason: string })
  expect(refused.sort((a, b) => a.line - b.line).map(({ line, reason }) => `${line} ${reason}`)).toEqual([
    '2 is no JSON',
    expect.stringMatching(/^3 score: .*number/),
    '4 is to survey 8',
    '5 ended_at: must be YYYY-MM-DD HH:MM:SS in Asia/Shanghai, or seconds since 1970',
    '6 question q: what was answered to star must be a whole number',
    '7 answer 5 is stored already, and differs',
    '8 there is no answer 3, but one with a higher id: a lower one cannot be added any more',
    '9 endTime is before startTime',
    '10 answer: must be a list of pages',
    '11 endTime is missing: only what was submitted is an answer',
  ])
  const out = await exported(service)
  expect(out.match(/"answer_id":\d+/g)).toEqual(['"answer_id":5', '"answer_id":6', '"answer_id":7'])
})

test('an array of answers is refused as a line that is no object', async () => {
  const service = await serviceWithSurvey()
  expect((await importing(service, '[{"answer_id":1}]\n')).stderr).toContain('line 1: must be an object')
})

test('a dry run stores nothing; an import goes on with --from; a survey that is not there is refused', async () => {
  const service = await serviceWithSurvey()
  const file = lines(...Array.from({ length: 1203 }, (_, at) => ({ answer: answered(String(at + 1)) })))
  expect(totals(await importing(service, file, '--dry-run'))).toMatchObject({ read: 1203, stored: 1203, dry_run: true })
  expect(await exported(service)).toBe('')
  expect(totals(await importing(service, file, '--from', '1001'))).toMatchObject({ read: 203, stored: 203 })
  expect((await exported(service)).split('\n')[0]).toContain('"text":"1001"')
  const missing = await service.run(['survey', 'answers', 'import', fileOf(service, file), '--survey', '8'])
  expect(missing).toMatchObject({ exitCode: 1, stdout: '', stderr: expect.stringContaining('there is no survey 8') })
})

test('CSV has a column for each question, and nothing in it is a formula', async () => {
  const question = (id: string, title: string) => ({ id, type: 'text', title })
  const pages = [{ questions: [question('q-1', '=1+1'), question('q-2', 'Why, "then"?')] }]
  const service = await serviceWithSurvey(false, { title: 't', pages })
  const texts = ['=cmd|x', '+1', '-1', '@a', '\t=1', ' =1', '＝1', 'a;=1', 'a\n" @b', 'a,b', '"q"', 'two\nlines', '好']
  const given = texts.map((text) => ({
    respondent_id: '=evil',
    score: -2,
    answer: [
      {
        id: 'p',
        questions: [
          { id: 'q-1', type: 'text', text },
          { id: 'gone', type: 'text', text: '=x' },
        ],
      },
    ],
  }))
  await importing(service, lines(...given))
  const csv = await exported(service, '--format', 'csv')
  const [header, first] = csv.split('\r\n')
  expect(header).toBe('\ufeffanswer_id,respondent_id,started_at,ended_at,score,\'=1+1,"Why, ""then""?",other')
  expect(first).toBe("1,'=evil,,2026-01-01 08:00:00,-2,'=cmd|x,,gone: =x")
  const cells = csv
    .split('\r\n')
    .slice(1, -1)
    .map((row) => row.replace(/^\d+,'=evil,,[^,]*,-2,/, '').replace(/,,gone: =x$/, ''))
  expect(cells).toEqual([
    "'=cmd|x",
    "'+1",
    "'-1",
    "'@a",
    "'\t'=1",
    "' =1",
    "'＝1",
    "a;'=1",
    `"a\n"" '@b"`,
    '"a,b"',
    '"""q"""',
    '"two\nlines"',
    '好',
  ])
})

test('answers are deleted by id or all, and the survey keeps its ids', async () => {
  const service = await serviceWithSurvey()
  await importing(service, lines(EMPTY, EMPTY, EMPTY, EMPTY))
  const remove = (...args: string[]) => service.run(['survey', 'answers', 'delete', ...args, ...SURVEY, '--json'])
  expect(totals(await remove('2', '3', '2'))).toEqual({ survey_id: 7, deleted: 2, already_deleted: 0 })
  expect(totals(await remove('3', '4'))).toEqual({ survey_id: 7, deleted: 1, already_deleted: 1 })
  expect(await remove('9')).toMatchObject({ exitCode: 1, stderr: expect.stringContaining('there is no answer 9') })
  expect((await remove()).exitCode).toBe(2)
  expect((await remove('1', '--all')).exitCode).toBe(2)
  expect(totals(await remove('--all'))).toMatchObject({ deleted: 1 })
  await importing(service, lines(EMPTY))
  expect(await exported(service)).toContain('"answer_id":5,')
  const events = await service.json<{ kind: string; note: string; survey_id: number }[]>(['audit', 'list'])
  const told = events.filter(({ kind }) => kind.startsWith('answers.')).map(({ kind, note }) => `${kind} ${note}`)
  expect(told.sort()).toEqual([
    'answers.deleted answers 1 to 4',
    'answers.deleted answers 2 to 2',
    'answers.deleted answers 3 to 3',
    'answers.deleted answers 4 to 4',
    'answers.imported answers 1 to 4',
    'answers.imported answers 5 to 5',
  ])
})
