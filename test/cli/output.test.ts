// Lists as they are printed, on a stdout that is watched.
import { expect, onTestFinished, test, vi } from 'vitest'
import { type Columns, message, note, printJson, printPages, printRow, printRows, progress } from '../../bin/output.js'

type Row = {
  readonly name: string
  readonly note: string | null
}

const columns: Columns<Row> = ['name', ['note', (row) => row.note]]
const rowOf = (name: string): Row => ({ name, note: name === 'b' ? 'line\u2028of\ntwo' : null })
const style = (json?: true) => ({ json, whenEmpty: 'nothing' })

/** Captures stdout and stderr from now on. */
function watched(): { out: string[]; err: string[] } {
  const [out, err]: string[][] = [[], []]
  const into = (texts: string[] | undefined) => (text: unknown) => Boolean(texts?.push(String(text)))
  vi.spyOn(process.stdout, 'write').mockImplementation(into(out))
  vi.spyOn(process.stderr, 'write').mockImplementation(into(err))
  onTestFinished(() => void vi.restoreAllMocks())
  return { out: out ?? [], err: err ?? [] }
}

/** Whether stderr is one, until the test ends. */
function onTerminal(value: boolean): void {
  const isTTY = Object.getOwnPropertyDescriptor(process.stderr, 'isTTY') ?? { value: undefined, configurable: true }
  onTestFinished(() => void Object.defineProperty(process.stderr, 'isTTY', isTTY))
  Object.defineProperty(process.stderr, 'isTTY', { value, configurable: true })
}

async function* pages(...names: readonly (readonly string[])[]): AsyncGenerator<readonly string[]> {
  yield* names
}

test.each([
  ['one page', [['a', 'b', 'ccc']]],
  ['pages of which some are empty', [[], ['a'], [], ['b', 'ccc'], []]],
  ['nothing', [[]]],
])('a list of %s as JSON is the array that JSON.stringify makes, line separators escaped', async (_, names) => {
  const { out } = watched()
  await printPages(pages(...names), rowOf, columns, style(true))
  expect(out.join('')).toBe(`${JSON.stringify(names.flat().map(rowOf), null, 2).replaceAll('\u2028', '\\u2028')}\n`)
})

test('JSON holds no character that could change what a terminal shows, and the same value', () => {
  const { out } = watched()
  const value = {
    '\u202e': ['\u0000\u001b[2J\u007f\u0085\u009b', '\u200e\u2066\u2028\u2029\ufeff\u{e0001}', '小李 👩\u200d💻\n'],
  }
  printJson(value)
  const [text = ''] = out
  expect(text.replaceAll('\n', '')).not.toMatch(/[\p{Cc}\p{Cf}\u2028\u2029]/u)
  expect(text).toContain('\\udb40\\udc01')
  expect(JSON.parse(text)).toEqual(value)
})

test('a table has one header, and one line per row', async () => {
  const { out, err } = watched()
  await printPages(pages(['a'], [], ['b', 'long-name'], ['c']), rowOf, columns, style())
  expect(out.join('')).toBe(
    ['NAME  NOTE', 'a     -', 'b          line\ufffdof\ufffdtwo', 'long-name  -', 'c          -', ''].join('\n'),
  )
  expect(err).toEqual([])
})

test.each([
  ['letters', 'abcd', 4],
  ['CJK', '小李', 4],
  ['CJK of a later plane', '\u{20bb7}\u{30000}', 4],
  ['an emoji', '🎉', 2],
  ['a flag', '🇨🇳', 2],
  ['combining marks', 'e\u0301o\u20dd\u3099', 2],
  ['a sign shown as an emoji', '✔\ufe0f', 1],
])(
  'in a table, the column behind %s, %j, begins where it takes %i columns of the terminal',
  async (_, name, columnsTaken) => {
    const { out } = watched()
    await printPages(pages([name, 'x'.repeat(9)]), rowOf, columns, style())
    const [, line = ''] = out.join('').split('\n')
    expect(line).toBe(`${name}${' '.repeat(9 - columnsTaken)}  -`)
  },
)

test('an empty table is not printed, and a terminal is told so', async () => {
  const { out, err } = watched()
  onTerminal(false)
  await printPages(pages([], []), rowOf, columns, style())
  expect({ out, err }).toEqual({ out: [], err: [] })
  onTerminal(true)
  await printPages(pages([], []), rowOf, columns, style())
  expect({ out, err }).toEqual({ out: [], err: ['\r\u001b[Knothing\n'] })
})

test('a page is printed before the next one is requested', async () => {
  const { out } = watched()
  const printed: number[] = []
  async function* asked(): AsyncGenerator<readonly string[]> {
    for (const name of ['a', 'b', 'c']) {
      printed.push(out.join('').split('\n').length - 1)
      yield [name]
    }
  }
  await printPages(asked(), rowOf, columns, style())
  expect(printed).toEqual([0, 2, 3])
})

test('a table may have more rows than a function may have arguments', () => {
  const { out } = watched()
  const rows = Array.from({ length: 200_000 }, () => rowOf('a'))
  printRows(rows, columns, style())
  expect(out.join('').split('\n')).toHaveLength(rows.length + 2)
})

test('a message keeps its lines, and nothing in it changes the terminal', () => {
  const { err } = watched()
  message('one: \u001b]0;title\u0007 \u009b2J \r\t\u202e 小李\ntwo')
  expect(err).toEqual(['one: \ufffd]0;title\ufffd \ufffd2J \ufffd\ufffd\ufffd 小李\ntwo\n'])
})

test('a time is ISO 8601 in JSON, and to the second in a table; a list is one cell', () => {
  const { out } = watched()
  const row = { at: new Date(Date.UTC(2027, 0, 31, 8, 0, 0, 5)), never: null, is: true, names: ['a', 'b'] }
  printRow(row, { json: true })
  expect(JSON.parse(out.splice(0).join(''))).toEqual({ ...row, at: '2027-01-31T08:00:00.005Z' })
  printRow(row, { json: undefined })
  expect(out.join('')).toBe('at     2027-01-31 08:00:00Z\nnever  -\nis     yes\nnames  a b\n')
})

test('progress and notes are for a terminal: a bar, which a message replaces and which is gone in the end', () => {
  const { err } = watched()
  const say = progress()
  onTerminal(false)
  say('1 of 3 surveys', 1 / 3)
  note('a note')
  expect(err.splice(0)).toEqual([])
  onTerminal(true)
  say('1 of 3 surveys', 1 / 3)
  message('a message')
  note('a note')
  say('3 of 3 surveys', 1)
  expect(err).toEqual([
    `\r\u001b[K[##########${'.'.repeat(20)}] 1 of 3 surveys`,
    '\r\u001b[Ka message\n',
    '\r\u001b[Ka note\n',
    '\r\u001b[K',
  ])
})
