import { setTimeout as sleep } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { afterNextTurn, endOfTurn } from '../event-loop/end-of-turn.js'

/** The events from now on until work that waits for the next turn is run. */
async function untilRun(begin: (happens: (what: string) => void, run: () => void) => void): Promise<string[]> {
  const happened: string[] = []
  await new Promise<void>((resolve) => {
    begin(
      (what) => happened.push(what),
      () => {
        happened.push('run')
        resolve()
      },
    )
  })
  return happened
}

/** Two ends of turns, and something that becomes ready in the second and is sent when nothing more becomes ready there. */
async function twoEnds(happens: (what: string) => void): Promise<void> {
  await endOfTurn()
  happens('end')
  await nextEnd(happens)
}

async function nextEnd(happens: (what: string) => void): Promise<void> {
  await endOfTurn()
  await Promise.resolve()
  happens('next end')
  process.nextTick(() => happens('sent'))
}

test('work that waits for the next turn runs after its end, wherever in a turn it began to wait', async () => {
  await sleep(1) // starts within a turn, not at its end
  const begunFirst = untilRun((happens, run) => {
    afterNextTurn(run)
    void twoEnds(happens)
  })
  expect(await begunFirst).toEqual(['end', 'next end', 'sent', 'run'])

  await sleep(1)
  const begunLast = untilRun((happens, run) => {
    void twoEnds(happens)
    afterNextTurn(run)
  })
  expect(await begunLast).toEqual(['end', 'next end', 'sent', 'run'])

  await endOfTurn()
  const begunAtAnEnd = untilRun((happens, run) => {
    afterNextTurn(run)
    void nextEnd(happens)
  })
  expect(await begunAtAnEnd).toEqual(['next end', 'sent', 'run'])
})
