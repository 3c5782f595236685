import { afterEach, describe, expect, test, vi } from 'vitest'
import { Admission } from '../../gateway/admission.js'

const turn = () => new Promise<void>((resolve) => setImmediate(resolve))

/** Takes a place, does the work and gives the place back, as the gateway does. */
async function run<Result>(admission: Admission, kind: 'api' | 'page', work: () => Promise<Result>): Promise<Result> {
  const wait = admission.enter(kind)
  try {
    if (wait) await wait
    return await work()
  } finally {
    admission.leave(kind)
  }
}

afterEach(() => {
  vi.restoreAllMocks()
})

test('of a burst of pages a few start per turn, in order, and API requests do not wait for them', async () => {
  const admission = new Admission(1_000)
  const begun: number[] = []
  const pages = Array.from({ length: 50 }, (_, index) =>
    run(admission, 'page', async () => {
      begun.push(index)
    }),
  )
  await run(admission, 'api', async () => {
    expect(begun.length).toBeLessThan(10)
  })
  let turns = 0
  while (begun.length < pages.length) {
    const before = begun.length
    await turn()
    turns += 1
    expect(begun.length - before).toBeLessThan(10)
  }
  expect(turns).toBeGreaterThan(8)
  await Promise.all(pages)
  expect(begun).toEqual(pages.map((_, index) => index))
})

test('pages that wait for their turn count as in flight', async () => {
  const admission = new Admission(20)
  const pages = Array.from({ length: 30 }, () => run(admission, 'page', async () => 'shown').catch(() => 'refused'))
  const outcomes = await Promise.all(pages)
  expect(outcomes.filter((outcome) => outcome === 'refused')).toHaveLength(10)
  expect(await run(admission, 'page', async () => 'shown')).toBe('shown')
})

test('after a burst a page starts at once', async () => {
  const admission = new Admission(100)
  await Promise.all(Array.from({ length: 20 }, () => run(admission, 'page', async () => undefined)))
  await turn()
  await turn()
  let hasBegun = false
  const page = run(admission, 'page', async () => {
    hasBegun = true
  })
  await Promise.resolve()
  await Promise.resolve()
  expect(hasBegun).toBe(true)
  await page
})

describe('an overload of API requests', () => {
  const MAX = 1_000
  let now = 0

  function enter(admission: Admission, count: number): number {
    let entered = 0
    for (let n = 0; n < count; n++) {
      try {
        admission.enter('api')
        entered += 1
      } catch {
        // refused
      }
    }
    return entered
  }

  /** For `ms`, each ms `leavingPerMs` requests leave and twice as many come. Returns how many hold a place at the end. */
  function stay(admission: Admission, inside: number, leavingPerMs: number, ms: number): number {
    let left = inside
    for (let n = 0; n < ms; n++) {
      now += 1
      const leaving = Math.min(left, leavingPerMs)
      for (let one = 0; one < leaving; one++) admission.leave('api')
      left += enter(admission, 2 * leavingPerMs) - leaving
    }
    return left
  }

  function crowded(): Admission {
    now = 5_000
    vi.spyOn(performance, 'now').mockImplementation(() => now)
    const admission = new Admission(MAX)
    expect(enter(admission, MAX + 500), 'a new crowd gets all places').toBe(MAX)
    return admission
  }

  test('that lasts may have as many in flight as are answered within 75 ms', () => {
    const admission = crowded()
    const inside = stay(admission, MAX, 6, 2_000)
    expect(inside).toBeGreaterThan(400)
    expect(inside).toBeLessThan(500)
    const faster = stay(admission, inside, 9, 2_000)
    expect(faster).toBeGreaterThan(600)
    expect(faster).toBeLessThan(750)
    expect(stay(admission, faster, 30, 2_000), 'and never more than all').toBe(MAX)
  })

  test('may have a quarter of the limit in flight, however slowly they are answered', () => {
    const admission = crowded()
    let inside = MAX
    for (let n = 0; n < 30; n++) {
      now += 300
      admission.leave('api')
      inside += enter(admission, 10) - 1
      for (; inside > 260; inside--) admission.leave('api')
    }
    expect(inside).toBe(MAX / 4)
  })

  test('may have the full limit in flight again after a second without a refusal', () => {
    const admission = crowded()
    const inside = stay(admission, MAX, 4, 2_000)
    expect(inside).toBeLessThan(400)
    now += 1_100
    expect(enter(admission, MAX)).toBe(MAX - inside)
  })

  test('that recurs, and clears in between, is not one that lasts', () => {
    const admission = crowded()
    let inside = MAX
    for (let n = 0; n < 10; n++) {
      for (const until = now + 900; now < until; now++) {
        for (let one = 0; one < 10 && inside > 0; one++, inside--) admission.leave('api')
      }
      inside += enter(admission, MAX + 500)
      expect(inside).toBeGreaterThan(700)
    }
  })

  test('whose requests are all answered together and repeated at once is one that lasts', () => {
    const admission = crowded()
    let inside = MAX
    for (let n = 0; n < 8; n++) {
      now += 240
      for (; inside > 0; inside--) admission.leave('api')
      inside += enter(admission, MAX + 500)
    }
    expect(inside).toBeLessThan(600)
  })

  test('that a pause of a slow service caused is over in the end: nothing is refused any more', () => {
    const admission = crowded()
    const SLOW_MS = 120
    const leaving: number[] = Array.from({ length: MAX }, () => now + 500) // what they wait for pauses first
    function go(ms: number): { came: number; refused: number } {
      const count = { came: 0, refused: 0 }
      for (const until = now + ms; now < until; now++) {
        for (; (leaving[0] ?? now) < now; leaving.shift()) admission.leave('api')
        const entered = enter(admission, 5)
        for (let one = 0; one < entered; one++) leaving.push(now + SLOW_MS)
        count.came += 5
        count.refused += 5 - entered
      }
      return count
    }
    const { came, refused } = go(2_000)
    expect(refused, 'what is to be undone').toBeGreaterThan(came / 2)
    go(10_000)
    expect(go(2_000).refused).toBe(0)
  })

  test('does not lower a limit of one', () => {
    now = 0
    vi.spyOn(performance, 'now').mockImplementation(() => now)
    const admission = new Admission(1)
    for (let n = 0; n < 10; n++) {
      expect(enter(admission, 3)).toBe(1)
      now += 300
      admission.leave('api')
    }
  })
})
