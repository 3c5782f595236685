import { MessageChannel } from 'node:worker_threads'
import { expect, onTestFinished, test, vi } from 'vitest'
import { Deadlines } from '../../services/rpc/deadlines.js'

const LATE_MS = 20

/** Deadlines whose clock is moved by hand. */
function withClock() {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval', 'setImmediate', 'performance'] })
  onTestFinished(() => void vi.useRealTimers())
  return { deadlines: new Deadlines(), goOn: (ms: number) => vi.advanceTimersByTime(ms) }
}

test('a deadline fires once, not before its time and soon after, whatever its place among others', () => {
  const { deadlines, goOn } = withClock()
  const startedAt = performance.now()
  const passed: (readonly [number, number])[] = []
  for (const ms of [60, 20, 5_000, 40, 0, 20]) {
    deadlines.add(startedAt + ms, () => passed.push([ms, performance.now() - startedAt]))
  }
  for (let ms = 0; ms < 200; ms++) goOn(1)
  expect(passed.map(([ms]) => ms)).toEqual([0, 20, 20, 40, 60])
  for (const [ms, atMs] of passed) {
    expect(atMs).toBeGreaterThanOrEqual(ms)
    expect(atMs).toBeLessThanOrEqual(ms + LATE_MS)
  }
})

test('a deadline that is over does not fire; those beside it do', () => {
  const { deadlines, goOn } = withClock()
  const passed: number[] = []
  const all = [0, 1, 2, 3, 4].map((n) => deadlines.add(performance.now() + 20, () => passed.push(n)))
  for (const n of [2, 0, 4]) Object.assign(all[n] as object, { isOver: true })
  goOn(60)
  expect(passed).toEqual([1, 3])
})

test('a deadline that fires may end another of the same moment, and add one', () => {
  const { deadlines, goOn } = withClock()
  const passed: string[] = []
  const atMs = performance.now() + 10
  deadlines.add(atMs, () => {
    passed.push('first')
    second.isOver = true
    deadlines.add(atMs, () => passed.push('third'))
  })
  const second = deadlines.add(atMs, () => passed.push('second'))
  goOn(60)
  expect(passed).toEqual(['first', 'third'])
})

test('no timer runs while there is no deadline', () => {
  const { deadlines, goOn } = withClock()
  const inTime = deadlines.add(performance.now() + 1_000, () => undefined)
  expect(vi.getTimerCount()).toBe(1)
  inTime.isOver = true
  goOn(LATE_MS)
  expect(vi.getTimerCount()).toBe(0)
  deadlines.add(performance.now() + 1_000, () => undefined)
  expect(vi.getTimerCount()).toBe(1)
  goOn(1_000 + LATE_MS)
  expect(vi.getTimerCount()).toBe(0)
})

test('a process that was blocked reads the answers that arrived meanwhile before a deadline fires', async () => {
  const { port1: here, port2: there } = new MessageChannel()
  onTestFinished(() => here.close())
  const deadlines = new Deadlines()
  const ended = await new Promise<string>((resolve) => {
    const deadline = deadlines.add(performance.now() + 50, () => resolve('passed'))
    here.on('message', () => {
      deadline.isOver = true
      resolve('answered')
    })
    setImmediate(() => {
      there.postMessage('answer')
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 100)
    })
  })
  expect(ended).toBe('answered')
})
