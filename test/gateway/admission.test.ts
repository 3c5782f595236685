import { expect, test } from 'vitest'
import { Admission } from '../../gateway/admission.js'

const turn = () => new Promise<void>((resolve) => setImmediate(resolve))

test('a crowd of pages begins a few a turn, in order, and requests of programs do not wait for it', async () => {
  const admission = new Admission(1_000)
  const begun: number[] = []
  const pages = Array.from({ length: 50 }, (_, index) =>
    admission.run('page', async () => {
      begun.push(index)
    }),
  )
  await admission.run('api', async () => {
    expect(begun.length).toBeLessThan(10)
  })
  let turns = 0
  while (begun.length < pages.length) {
    const before = begun.length
    await turn()
    turns += 1
    expect(begun.length - before).toBeLessThan(10)
  }
  expect(turns).toBeGreaterThan(8)
  await Promise.all(pages)
  expect(begun).toEqual(pages.map((_, index) => index))
})

test('pages that wait for their turn count as under way', async () => {
  const admission = new Admission(20)
  const pages = Array.from({ length: 30 }, () => admission.run('page', async () => 'shown').catch(() => 'refused'))
  const outcomes = await Promise.all(pages)
  expect(outcomes.filter((outcome) => outcome === 'refused')).toHaveLength(10)
  expect(await admission.run('page', async () => 'shown')).toBe('shown')
})

test('after a crowd a page begins at once', async () => {
  const admission = new Admission(100)
  await Promise.all(Array.from({ length: 20 }, () => admission.run('page', async () => undefined)))
  await turn()
  await turn()
  let hasBegun = false
  const page = admission.run('page', async () => {
    hasBegun = true
  })
  await Promise.resolve()
  await Promise.resolve()
  expect(hasBegun).toBe(true)
  await page
})
