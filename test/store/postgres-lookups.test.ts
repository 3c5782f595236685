// Lookups that share a statement, with a fake database.
import { expect, test, vi } from 'vitest'
import { Lookups } from '../../services/storage/postgres/lookups.js'
import type { Database } from '../../services/storage/postgres/transaction.js'
import { StoreUnavailable } from '../../services/storage/store-unavailable.js'
import { mostKeptMB } from '../harness/kept.js'

type Row = { readonly key: string }

/** Lookups of rows by a key of one value or several; `groups` are the keys of each statement, answered once `answered` is. */
function lookups(maxTogether?: number, types: readonly string[] = ['text'], answered?: Promise<void>, waitMs = 10_000) {
  const groups: string[][] = []
  const database = {
    until: () => ({ dueAt: performance.now() + waitMs }),
    read: async (_: unknown, [first = [], ...others]: readonly string[][]) => {
      const keys = first.map((value, index) => [value, ...others.map((column) => column[index])].join(' '))
      groups.push(keys)
      await (answered ?? new Promise((resolve) => setImmediate(resolve)))
      return keys.map((key, index) => ({ place: index + 1, key }))
    },
  }
  const statement = { name: 'find', text: 'SELECT key FROM rows WHERE key = $1' }
  return { groups, rows: new Lookups<Row>(database as unknown as Database, statement, types, maxTogether) }
}

test('lookups of the same key before it is sent share one result, and each other key gets its own', async () => {
  const { groups, rows } = lookups()
  const found = await Promise.all(['a', 'b', 'a'].map((key) => rows.findOne(key)))
  expect(found.map((row) => row?.key)).toEqual(['a', 'b', 'a'])
  expect(found[2]).toBe(found[0])
  expect(groups).toEqual([['a', 'b']])
})

test('keys of several values are told apart, even when their texts run together', async () => {
  const { rows } = lookups(undefined, ['text', 'bigint', 'bigint'])
  const found = await Promise.all([
    rows.findOne('user', 11, 11),
    rows.findOne('user', 111, 1),
    rows.findOne('user1', 1, 11),
  ])
  expect(found.map((row) => row?.key)).toEqual(['user 11 11', 'user 111 1', 'user1 1 11'])
})

test('a lookup made while a statement is in flight gets the result of the next one', async () => {
  let answer = () => {}
  const answered = new Promise<void>((resolve) => {
    answer = resolve
  })
  const { groups, rows } = lookups(1, ['text'], answered)
  const first = rows.findOne('a')
  await vi.waitFor(() => expect(groups).toEqual([['a']]), { interval: 1 })
  const second = rows.findOne('a')
  answer()
  expect(await second).not.toBe(await first)
  expect(groups).toEqual([['a'], ['a']])
})

test('a lookup does not share one that has waited long, so it may still wait when that is refused', async () => {
  let answer = () => {}
  const answered = new Promise<void>((resolve) => {
    answer = resolve
  })
  const { groups, rows } = lookups(1, ['text'], answered, 2_000)
  const underWay = Promise.all([rows.findOne('b'), rows.findOne('c')])
  await vi.waitFor(() => expect(groups).toEqual([['b'], ['c']]), { interval: 1 })
  const first = rows.findOne('a').catch((error: unknown) => error)
  await new Promise((resolve) => setTimeout(resolve, 1_200))
  const second = rows.findOne('a')
  expect(await first).toBeInstanceOf(StoreUnavailable)
  answer()
  expect(await second).toEqual({ key: 'a' })
  await underWay
})

test('rows that were found are freed by young-generation garbage collections', () => {
  const kept = mostKeptMB(`
    const { Lookups } = await import(dist + 'services/storage/postgres/lookups.js')
    const database = {
      until: () => ({ dueAt: performance.now() + 10_000 }),
      async read(_, [keys]) {
        await new Promise((resolve) => setImmediate(resolve))
        return keys.map((key, index) => ({ place: index + 1, key, payload: new Array(50).fill(index) }))
      },
    }
    const rows = new Lookups(database, { name: 'find', text: 'SELECT key FROM rows WHERE key = $1' }, ['text'])
    const keys = Array.from({ length: 1_000 }, (_, n) => 'key ' + n)
    let asked = 0
    async function ask() {
      for (let n = 0; n < 150; n++) await rows.findOne(keys[asked++ % 1_000])
    }
    const work = () => Promise.all(Array.from({ length: 64 }, ask))`)
  expect(kept).toBeLessThan(5)
})
