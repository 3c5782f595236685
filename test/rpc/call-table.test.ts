import { expect, test } from 'vitest'
import { CallTable, MAX_CALLS } from '../../services/rpc/call-table.js'
import { mostKeptMB } from '../harness/kept.js'

test('each call has its own id, by which it is found until it is deleted', () => {
  const table = new CallTable<string>()
  const [a, b] = [table.add('a'), table.add('b')]
  expect([table.get(a), table.get(b), table.size]).toEqual(['a', 'b', 2])
  expect([table.delete(a), table.delete(a), table.get(a), table.size]).toEqual([true, false, undefined, 1])
  expect(table.calls()).toEqual(['b'])
})

test('the id of a deleted call finds nothing, even when another call has its slot', () => {
  const table = new CallTable<number>()
  const first = table.add(0)
  table.delete(first)
  const ids = new Set([first])
  let found = 0
  for (let n = 0; n < 100_000; n++) {
    const id = table.add(n)
    ids.add(id)
    if (table.get(first) !== undefined) found += 1
    table.delete(id)
  }
  expect([ids.size, found]).toEqual([100_001, 0])
})

test('calls that stay are found, however many come and go meanwhile', () => {
  const table = new CallTable<string>()
  const staying = Array.from({ length: 500 }, (_, n) => [table.add(`stays ${n}`), `stays ${n}`] as const)
  for (let n = 0; n < 100_000; n++) table.delete(table.add('goes'))
  for (const [id, call] of staying) expect(table.get(id)).toBe(call)
  expect(table.calls()).toEqual(staying.map(([, call]) => call))
})

test('a full table refuses calls, and takes the next once one has gone', () => {
  const table = new CallTable<number>()
  const ids = Array.from({ length: MAX_CALLS }, (_, n) => table.add(n))
  expect(() => table.add(0)).toThrow('too many calls')
  table.delete(ids[7] ?? -1)
  expect(table.get(table.add(1))).toBe(1)
  expect(table.size).toBe(MAX_CALLS)
})

test('finished calls are freed by young-generation garbage collections', () => {
  const kept = mostKeptMB(`
    const { CallTable } = await import(dist + 'services/rpc/call-table.js')
    const table = new CallTable()
    const ids = []
    function work() {
      for (let n = 0; n < 10_000; n++) {
        ids.push(table.add({ request: new Array(50).fill(n) }))
        if (ids.length > 64) table.delete(ids.shift())
      }
    }`)
  expect(kept).toBeLessThan(5)
})
