// The audit trails of both databases as one list, also when a clock was wrong.
import { expect, test } from 'vitest'
import { merged, since, type Trail } from '../../bin/commands/trails.js'

const DAY = Date.UTC(2026, 10, 25)

/** An event so many seconds after midnight, as the databases make ids: the time first. */
function event(name: string, seconds: number) {
  const atMs = DAY + seconds * 1000
  return { name, event_id: atMs.toString(16).padStart(12, '0'), created_at: new Date(atMs).toISOString() }
}
type Event = ReturnType<typeof event>

/** In pages of so many; `asked` counts them. */
function trailOf(events: readonly Event[], pageSize = 3) {
  const asked = { pages: 0 }
  async function* pages(): Trail<Event> {
    for (let at = 0; at < events.length; at += pageSize) {
      asked.pages += 1
      yield events.slice(at, at + pageSize)
    }
  }
  return Object.assign(pages(), { asked })
}

async function namesOf(pages: Trail<Event>): Promise<string[][]> {
  const all: string[][] = []
  for await (const page of pages) all.push(page.map(({ name }) => name))
  return all
}

const seconds = (letter: string, ...all: number[]) => all.map((at) => event(`${letter}${at}`, at))

test('two trails are merged, newest first, in whole pages', async () => {
  const [one, other] = [trailOf(seconds('a', 9, 7, 6, 2, 1)), trailOf(seconds('b', 8, 5, 4, 3))]
  expect(await namesOf(merged([one, other], 4))).toEqual([['a9', 'b8', 'a7', 'a6'], ['b5', 'b4', 'b3', 'a2'], ['a1']])
})

test.each([
  ['of which one is empty', trailOf([]), [['b3', 'b2'], ['b1']]],
  ['that is alone', undefined, [['b3', 'b2'], ['b1']]],
] as const)('a trail %s is left as it is', async (_, other, expected) => {
  const one = trailOf(seconds('b', 3, 2, 1), 1)
  expect(await namesOf(merged(other ? [other, one] : [one], 2))).toEqual(expected)
})

test('no page is requested before it is needed', async () => {
  const [one, other] = [trailOf(seconds('a', 9, 8, 7, 6, 5)), trailOf(seconds('b', 4, 3, 2, 1, 0))]
  for await (const page of merged([one, other], 2)) {
    expect(page).toHaveLength(2)
    break
  }
  expect([one.asked.pages, other.asked.pages]).toEqual([1, 1])
})

test('an event from a clock that was behind does not hold back the rest of its trail', async () => {
  const one = trailOf([event('a9', 9), event('wrong', -1_000_000), event('a7', 7), event('a6', 6)])
  const other = trailOf(seconds('b', 8, 5))
  expect((await namesOf(merged([one, other], 10))).flat()).toEqual(['a9', 'b8', 'wrong', 'a7', 'a6', 'b5'])
})

test('events before a time are left out, but not those that follow an event from a clock that was behind', async () => {
  const trail = trailOf([event('a9', 9), event('wrong', -1_000_000), ...seconds('a', 8, 7, 6, 5, 4, 3, 2, 1)])
  expect((await namesOf(since(trail, new Date(DAY + 6_500)))).flat()).toEqual(['a9', 'a8', 'a7'])
  expect(trail.asked.pages).toBe(3) // the last one was empty
  expect((await namesOf(since(trailOf(seconds('a', 2, 1)), undefined))).flat()).toEqual(['a2', 'a1'])
})
