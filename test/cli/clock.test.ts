import { expect, test } from 'vitest'
import { forwardClock } from '../../bin/compose/time-and-chance.js'

function open() {
  const state = { nowMs: 1_000_000, elapsedMs: 5_000.7 }
  const setBack: number[] = []
  const now = forwardClock({
    now: () => state.nowMs,
    elapsed: () => state.elapsedMs,
    onSetBack: (ms) => setBack.push(ms),
  })
  const pass = (ms: number) => {
    state.nowMs += ms
    state.elapsedMs += ms
    return now()
  }
  return { now, pass, set: (nowMs: number) => Object.assign(state, { nowMs }), setBack }
}

test('the clock of a process follows the system clock, even when that jumps forward', () => {
  const { now, pass, set, setBack } = open()
  expect([now(), pass(10), pass(0)]).toEqual([1_000_000, 1_000_010, 1_000_010])
  set(9_000_000)
  expect([now(), pass(1)]).toEqual([9_000_000, 9_000_001])
  expect(setBack).toEqual([])
})

test('when the system clock is set back it goes on at its pace, in whole milliseconds, and reports it once', () => {
  const { now, pass, set, setBack } = open()
  now()
  set(400_000)
  expect([now(), pass(250), pass(0.5), pass(0.5)]).toEqual([1_000_000, 1_000_250, 1_000_250, 1_000_251])
  set(100_000)
  expect([now(), pass(9)]).toEqual([1_000_251, 1_000_260])
  expect(setBack).toEqual([600_000])
})

test('it follows the system clock again when that has caught up, and starts over when that is set back again', () => {
  const { now, pass, set, setBack } = open()
  now()
  set(990_000)
  expect(pass(100)).toBe(1_000_000)
  set(1_000_100)
  expect([now(), pass(5)]).toEqual([1_000_100, 1_000_105])
  set(998_000)
  expect([now(), pass(5)]).toEqual([1_000_105, 1_000_110])
  expect(setBack).toEqual([9_900, 2_105])
})

test('a step back of less than a second is not reported, and the clock still does not go back', () => {
  const { now, pass, set, setBack } = open()
  now()
  set(999_900)
  expect([now(), pass(50)]).toEqual([1_000_000, 1_000_050])
  expect(setBack).toEqual([])
})
