import { existsSync, readFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { ERRORS } from './harness/errors.js'

const read = (file: string) => readFileSync(new URL(file, import.meta.url), 'utf8')

interface Row {
  readonly clause: string
  readonly tests: readonly { readonly file: string; readonly title: string }[]
}

/** The rows of the table below a heading of test/README.md. */
function rowsBelow(heading: string): readonly Row[] {
  const [, section = ''] = read('README.md').split(`## ${heading}\n`)
  const [table = ''] = section.split('\n## ')
  const lines = table.split('\n').filter((line) => line.startsWith('|') && !/^[| :-]+$/.test(line))
  return lines.slice(1).map((line) => {
    const cells = line.split('|').map((cell) => cell.trim())
    const tests = (cells.at(-2) ?? '').split('<br>').map((cell) => {
      const [, file = '', title = ''] = /^`([^`]+)` (.+)$/.exec(cell) ?? []
      return { file, title }
    })
    return { clause: cells[1] ?? '', tests }
  })
}

const tables = ['Clauses of the specification', 'Rows of docs/decisions.md', 'The error table'].map((heading) => ({
  heading,
  rows: rowsBelow(heading),
}))

describe('test/README.md', () => {
  test.each(tables)('$heading: every row names tests that exist', ({ rows }) => {
    expect(rows.length).toBeGreaterThan(10)
    for (const { clause, tests } of rows) {
      for (const { file, title } of tests) {
        expect(existsSync(new URL(file, import.meta.url)), `${clause}: ${file}`).toBe(true)
        const source = read(file)
        const isThere = ["'", '"', '`'].some((quote) => source.includes(quote + title + quote))
        expect(isThere, `${clause}: no test of ${file} is called "${title}"`).toBe(true)
      }
    }
  })

  test('has one row for every row of docs/decisions.md', () => {
    const numbers = [...read('../docs/decisions.md').matchAll(/^\| *(\d+) *\|/gm)].map(([, number]) => Number(number))
    const listed = tables[1]?.rows.map(({ clause }) => Number(clause))
    expect(listed).toEqual(numbers.sort((a, b) => a - b))
  })

  test('has a row for every error.type', () => {
    const listed = tables[2]?.rows.map(({ clause }) => clause)
    for (const type of Object.keys(ERRORS)) expect(listed).toContain(type)
  })

  test('has every section of the specification', () => {
    const sections = new Set(tables[0]?.rows.map(({ clause }) => clause.split(/[.,]/)[0]))
    expect([...sections]).toEqual(['1', '2', '3', '4', '5', '6', '7', '8', '9'])
  })
})
