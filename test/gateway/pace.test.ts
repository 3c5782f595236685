import { expect, test } from 'vitest'
import { Pace } from '../../gateway/admission.js'

const turn = () => new Promise<void>((resolve) => setImmediate(resolve))

test('callers that queue again as soon as they are let through do not block the event loop', async () => {
  const pace = new Pace(10)
  let letOn = 0
  let isOver = false
  const crowd = Array.from({ length: 500 }, async () => {
    while (!isOver) {
      await pace.next()
      letOn += 1
    }
  })
  for (let seen = 1; seen <= 20; seen += 1) {
    await turn()
    expect(letOn).toBeLessThanOrEqual(10 * (seen + 1))
  }
  expect(letOn).toBeGreaterThanOrEqual(10 * 19)
  isOver = true
  await Promise.all(crowd)
})

test('all callers are let through in the order they came, and one that comes alone does not wait', async () => {
  const pace = new Pace(3)
  const order: number[] = []
  await Promise.all(
    Array.from({ length: 10 }, async (_, index) => {
      await pace.next()
      order.push(index)
    }),
  )
  expect(order).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
  await turn()
  await turn()
  expect(pace.next()).toBeUndefined()
})
