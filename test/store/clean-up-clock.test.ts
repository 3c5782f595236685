import { describe, expect, test } from 'vitest'
import { CLOCK_WAIT_MS, CleanUpClock } from '../../services/storage/clean-up-clock.js'

const NOW = 1_767_225_600_000
const HOUR = 3_600_000
const DAY = 24 * HOUR

/** A janitor's clock over a store in memory. */
function opened(lastMs: number | undefined) {
  const at = { lastMs, now: NOW, elapsed: 0, waiting: [] as (number | undefined)[] }
  const store = {
    lastCleanUp: async () => at.lastMs,
    recordCleanUp: async (atMs: number) => {
      at.lastMs = atMs
    },
  }
  const clock = new CleanUpClock({
    store,
    now: () => at.now,
    elapsed: () => at.elapsed,
    onWaiting: (ms) => at.waiting.push(ms),
  })
  const pass = (ms: number) => {
    at.now += ms
    at.elapsed += ms
  }
  return { at, clock, pass }
}

describe('the clock of a janitor', () => {
  test.each([
    ['never cleaned up', undefined, true],
    ['cleaned up a day before', NOW - DAY, true],
    ['cleaned up more than a day before', NOW - DAY - 1, false],
    ['cleaned up a day later', NOW + DAY, true],
    ['cleaned up more than a day later', NOW + DAY + 1, false],
  ])('is believed at a start on a database that was %s: %s, %s', async (_, lastMs, isBelieved) => {
    const { at, clock } = opened(lastMs)
    const asOfMs = isBelieved ? NOW : Math.min(NOW, lastMs ?? NOW)
    expect(await clock.begin()).toEqual({ isBelieved, asOfMs, behindMs: (lastMs ?? NOW) - NOW })
    expect(at.waiting).toEqual([isBelieved ? undefined : lastMs])
    expect(at.lastMs).toBe(isBelieved ? NOW : lastMs)
  })

  test.each([60 * DAY, -60 * DAY])(
    'that is off by %i ms is believed once it has said so for six hours',
    async (off) => {
      const { at, clock, pass } = opened(NOW - off)
      for (const [ms, isBelieved] of [
        [CLOCK_WAIT_MS - 1, false],
        [1, true],
      ] as const) {
        pass(ms)
        expect((await clock.begin()).isBelieved).toBe(isBelieved)
      }
      expect(at.lastMs).toBe(at.now)
      expect(at.waiting).toEqual([NOW - off, undefined])
    },
  )

  test('that jumps in a process that has run for long is believed six hours later at the earliest', async () => {
    const { at, clock, pass } = opened(NOW)
    for (let hour = 0; hour < 48; hour++) {
      pass(HOUR)
      expect((await clock.begin()).isBelieved).toBe(true)
    }
    const before = at.now
    at.now += 60 * DAY
    for (let hour = 0; hour < 6; hour++) {
      expect(await clock.begin()).toMatchObject({ isBelieved: false, asOfMs: before })
      pass(HOUR)
    }
    expect((await clock.begin()).isBelieved).toBe(true)
  })

  test('that alone has jumped is not believed while others record that theirs has not', async () => {
    const { at, clock, pass } = opened(NOW - 60 * DAY)
    for (let hour = 0; hour < 48; hour++) {
      at.lastMs = NOW - 60 * DAY + hour * HOUR
      expect((await clock.begin()).isBelieved).toBe(false)
      pass(HOUR)
    }
  })

  test('is believed after a round on a new database and weeks without any', async () => {
    const { clock, pass } = opened(undefined)
    await clock.begin()
    pass(60 * DAY)
    expect((await clock.begin()).isBelieved).toBe(true)
  })

  test('is recorded once an hour', async () => {
    const { at, clock, pass } = opened(NOW)
    pass(HOUR - 1)
    await clock.begin()
    expect(at.lastMs).toBe(NOW)
    pass(1)
    await clock.begin()
    expect(at.lastMs).toBe(NOW + HOUR)
  })
})
