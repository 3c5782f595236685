// What goes together, without a connection.
import { expect, onTestFinished, test, vi } from 'vitest'
import { afterNextTurn } from '../../event-loop/end-of-turn.js'
import { SendQueue } from '../../services/rpc/send-queue.js'

const turns = () => new Promise<void>((resolve) => afterNextTurn(resolve))

/** `sent` are the calls of each message. Time stands still, except for `advanceBy`. */
function makeQueue(waitsForAnswers: boolean) {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
  onTestFinished(() => void vi.useRealTimers())
  const sent: string[][] = []
  const state = { isOpen: true }
  const queue = new SendQueue<string>({
    waitsForAnswers,
    isOpen: () => state.isOpen,
    send: (calls) => sent.push([...calls]),
  })
  const addAll = (...calls: string[]) => {
    for (const call of calls) queue.add(call)
  }
  return { queue, sent, state, addAll, advanceBy: (ms: number) => vi.advanceTimersByTime(ms) }
}

const many = (count: number) => Array.from({ length: count }, (_, index) => `call ${index}`)

test('calls of one turn and the next go together, answered or not', async () => {
  const { sent, addAll } = makeQueue(false)
  addAll('first')
  setImmediate(() => addAll('second'))
  await turns()
  await turns()
  addAll('third')
  await turns()
  expect(sent).toEqual([['first', 'second'], ['third']])
})

test('who waits for answers waits for all of them, and goes with those who came meanwhile', async () => {
  const { queue, sent, addAll } = makeQueue(true)
  addAll('first', 'second')
  await turns()
  expect(sent).toEqual([['first', 'second']])

  addAll('third')
  await turns()
  queue.settled()
  addAll('fourth')
  await turns()
  expect(sent).toHaveLength(1)

  queue.settled()
  await turns()
  expect(sent).toEqual([
    ['first', 'second'],
    ['third', 'fourth'],
  ])
})

test('so many as are worth a message go at once', async () => {
  const { sent, addAll } = makeQueue(true)
  addAll('first')
  await turns()
  addAll(...many(31))
  await turns()
  expect(sent).toHaveLength(1)

  addAll('one more')
  await turns()
  expect(sent[1]).toEqual([...many(31), 'one more'])
})

test('an answer is waited for 5 ms by who waits longest, and not again by those who went', async () => {
  const { sent, addAll, advanceBy } = makeQueue(true)
  addAll('first')
  await turns()
  addAll('second')
  advanceBy(4)
  addAll('third')
  expect(sent).toHaveLength(1)

  advanceBy(1)
  expect(sent).toEqual([['first'], ['second', 'third']])

  addAll('fourth')
  advanceBy(4)
  expect(sent).toHaveLength(2)
  advanceBy(1)
  expect(sent[2]).toEqual(['fourth'])
})

test('one that is given up, sent or not, is not waited for', async () => {
  const { queue, sent, addAll } = makeQueue(true)
  addAll('first')
  await turns()
  addAll('second')
  queue.settled() // the second: whoever sends leaves it out
  addAll('third')
  queue.settled() // the first
  await turns()
  expect(sent).toEqual([['first'], ['second', 'third']])

  queue.settled()
  addAll('fourth')
  await turns()
  expect(sent[2]).toEqual(['fourth'])
})

test('while it is closed all wait, and then go together', async () => {
  const { queue, sent, state, addAll } = makeQueue(true)
  state.isOpen = false
  addAll('first')
  await turns()
  addAll('second')
  await turns()
  expect(sent).toEqual([])

  state.isOpen = true
  queue.flush()
  expect(sent).toEqual([['first', 'second']])
})

test('who went before the 5 ms were over leaves them to nobody', async () => {
  const { queue, sent, addAll, advanceBy } = makeQueue(true)
  addAll('first')
  await turns()
  addAll('second')
  advanceBy(3)
  queue.settled()
  await turns()
  expect(sent).toEqual([['first'], ['second']])

  addAll('third')
  advanceBy(3) // 6 ms since the second began to wait
  await turns()
  expect(sent).toHaveLength(2)
})
