import { expect, test } from 'vitest'
import { StoreUnavailable } from '../../services/storage/store-unavailable.js'
import { createReadRecorder } from '../../services/survey/read-recorder.js'
import type { AnswersRead } from '../../services/survey/store/survey-event.js'
import { NOW } from './token-store-verbs.js'

const HOUR = 3_600_000
const START = NOW - (NOW % HOUR)

function recorder() {
  const written: string[] = []
  let isUp = true
  const store = {
    async recordAnswersRead({ appid, surveyId, hourMs, firstId, lastId }: AnswersRead) {
      if (!isUp) throw new StoreUnavailable(new Error('down'))
      written.push(`${appid} ${surveyId} ${(hourMs - START) / HOUR} ${firstId}-${lastId}`)
    },
  }
  const reads = createReadRecorder(store)
  const read = (
    firstId: number,
    lastId: number,
    { atMs = START, appid = 'a', surveyId = 7, ownerUserId = 'ann' } = {},
  ) => reads.record({ appid, surveyId, ownerUserId, firstId, lastId, requestId: 'r' }, atMs)
  const setUp = (up: boolean) => {
    isUp = up
  }
  return { written, reads, read, setUp }
}

test('an app that reads answers to a survey is recorded at once, once an hour; how far it got, at the next flush', async () => {
  const { written, reads, read } = recorder()
  await read(5, 9)
  expect(written).toEqual(['a 7 0 5-9'])
  await read(10, 20)
  await read(1, 2, { atMs: START + HOUR - 1 })
  await read(6, 6)
  expect(written).toHaveLength(1)
  await read(1, 1, { atMs: START + HOUR })
  await read(1, 1, { appid: 'b' })
  await read(1, 1, { surveyId: 8 })
  expect(written.slice(1)).toEqual(['a 7 1 1-1', 'b 7 0 1-1', 'a 8 0 1-1'])
  await reads.flush()
  await reads.flush()
  expect(written.slice(4)).toEqual(['a 7 0 1-20'])
})

test('what cannot be recorded is refused, and the next attempt records it; a flush that fails is made up for', async () => {
  const { written, reads, read, setUp } = recorder()
  setUp(false)
  await expect(Promise.all([read(1, 2), read(1, 2)])).rejects.toThrow(StoreUnavailable)
  setUp(true)
  await read(1, 2)
  await read(3, 4)
  setUp(false)
  await expect(reads.flush()).rejects.toThrow(StoreUnavailable)
  setUp(true)
  await reads.flush()
  expect(written).toEqual(['a 7 0 1-2', 'a 7 0 1-4'])
})

test('a survey that another owner gets within the hour is recorded for both', async () => {
  const { written, read } = recorder()
  await read(1, 9)
  await read(1, 1, { ownerUserId: 'ben' })
  expect(written).toEqual(['a 7 0 1-9', 'a 7 0 1-1'])
})
