import { expect, onTestFinished, test, vi } from 'vitest'
import { startRounds } from '../../services/storage/rounds.js'

test('a round that overruns is followed by one at its usual time, not by all that were due meanwhile', async () => {
  vi.useFakeTimers()
  onTestFinished(() => void vi.useRealTimers())
  const ends: (() => void)[] = []
  const round = () => new Promise<void>((resolve) => ends.push(resolve))
  const rounds = startRounds({ round, everyMs: 1_000, onError: () => undefined })
  await vi.advanceTimersByTimeAsync(10_500)
  ends[0]?.()
  await vi.advanceTimersByTimeAsync(400)
  expect(ends, 'none of those that were due waits').toHaveLength(1)
  await vi.advanceTimersByTimeAsync(100)
  expect(ends).toHaveLength(2)
  ends[1]?.()
  await rounds.stop()
  await vi.advanceTimersByTimeAsync(5_000)
  expect(ends).toHaveLength(2)
})
