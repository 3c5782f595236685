import { onTestFinished, vi } from 'vitest'

/**
 * Until the test ends, `performance.now()` moves only by `vi.advanceTimersByTime`: no timeout expires, however
 * long the machine stalls, and waiting for one to expire never ends.
 */
export function freezeTime(): void {
  const now = performance.now()
  vi.useFakeTimers({ toFake: ['performance'] })
  onTestFinished(() => void vi.useRealTimers())
  vi.advanceTimersByTime(Math.ceil(now))
}
