// Which calls are sent together, tested without a connection.
import { expect, onTestFinished, test, vi } from 'vitest'
import { afterNextTurn } from '../../event-loop/end-of-turn.js'
import { SendQueue } from '../../services/rpc/send-queue.js'

const turns = () => new Promise<void>((resolve) => afterNextTurn(resolve))

/** `sent` are the calls of each message. Time stands still, except for `advanceBy`. */
function makeQueue(waitsForAnswers: boolean) {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] })
  onTestFinished(() => void vi.useRealTimers())
  const sent: string[][] = []
  const givenUp = new Set<string>()
  const state = { isOpen: true }
  const queue = new SendQueue<string>({
    waitsForAnswers,
    isOpen: () => state.isOpen,
    isWanted: (call) => !givenUp.has(call),
    send: (calls) => sent.push([...calls]),
  })
  const addAll = (...calls: string[]) => {
    for (const call of calls) queue.add(call)
  }
  return {
    queue,
    sent,
    state,
    /** Adds calls and lets two turns pass. */
    async add(...calls: string[]) {
      addAll(...calls)
      await turns()
    },
    addAll,
    async settle(...calls: string[]) {
      for (const call of calls) queue.settled(call)
      await turns()
    },
    giveUp(call: string) {
      givenUp.add(call)
      queue.settled(call)
    },
    advanceBy: (ms: number) => vi.advanceTimersByTime(ms),
  }
}

const many = (count: number) => Array.from({ length: count }, (_, index) => `call ${index}`)

test('calls of two consecutive turns are sent together, without waiting for earlier answers', async () => {
  const { sent, addAll, add } = makeQueue(false)
  addAll('first')
  setImmediate(() => addAll('second'))
  await turns()
  await turns()
  await add('third')
  expect(sent).toEqual([['first', 'second'], ['third']])
})

test('a queue that waits for answers waits for all of them, then sends what arrived meanwhile together', async () => {
  const { sent, add, settle } = makeQueue(true)
  await add('first', 'second')
  expect(sent).toEqual([['first', 'second']])

  await add('third')
  await settle('first')
  await add('fourth')
  expect(sent).toHaveLength(1)

  await settle('second')
  expect(sent).toEqual([
    ['first', 'second'],
    ['third', 'fourth'],
  ])
})

test('once enough calls for a message have gathered, they are sent without waiting', async () => {
  const { sent, add } = makeQueue(true)
  await add('first')
  await add(...many(31))
  expect(sent).toHaveLength(1)

  await add('one more')
  expect(sent[1]).toEqual([...many(31), 'one more'])
})

test('an answer is waited for until 5 ms after its call was sent, and not at all by later calls', async () => {
  const { sent, add, advanceBy } = makeQueue(true)
  await add('first')
  advanceBy(4)
  await add('second')
  expect(sent).toHaveLength(1)

  advanceBy(1)
  expect(sent).toEqual([['first'], ['second']])

  await add('third')
  await add('fourth')
  expect(sent).toEqual([['first'], ['second'], ['third'], ['fourth']])
})

test('a single call does not wait for an answer that is already overdue', async () => {
  const { sent, add, advanceBy } = makeQueue(true)
  await add('first')
  advanceBy(1_000)
  await add('second')
  expect(sent).toEqual([['first'], ['second']])
})

test('after a slow answer no call waits, until an answer comes in time again', async () => {
  const { sent, add, settle, advanceBy } = makeQueue(true)
  await add('slow')
  advanceBy(6)
  await settle('slow')
  await add('first')
  await add('second')
  expect(sent).toEqual([['slow'], ['first'], ['second']])

  advanceBy(5)
  await settle('first')
  await add('third')
  await add('fourth')
  expect(sent.slice(3)).toEqual([['third']])

  await settle('second', 'third')
  expect(sent.slice(3)).toEqual([['third'], ['fourth']])
})

test('a call given up before it was sent is neither sent nor waited for', async () => {
  const { sent, add, addAll, settle, giveUp } = makeQueue(true)
  addAll('given up', 'first')
  giveUp('given up')
  await turns()
  expect(sent).toEqual([['first']])

  await add('second')
  expect(sent).toHaveLength(1)
  await settle('first')
  expect(sent).toEqual([['first'], ['second']])

  await settle('second')
  addAll('given up')
  await turns()
  await add('third')
  expect(sent[2]).toEqual(['third'])
})

test('a call given up after it was sent is not waited for', async () => {
  const { sent, add, giveUp } = makeQueue(true)
  await add('first')
  await add('second')
  giveUp('first')
  await turns()
  expect(sent).toEqual([['first'], ['second']])
})

test('while the queue is closed all calls wait, and are then sent together', async () => {
  const { queue, sent, state, add, advanceBy } = makeQueue(true)
  await add('before')
  state.isOpen = false
  await add('first')
  advanceBy(10)
  await add('second')
  expect(sent).toEqual([['before']])

  state.isOpen = true
  queue.flush()
  expect(sent).toEqual([['before'], ['first', 'second']])
})
