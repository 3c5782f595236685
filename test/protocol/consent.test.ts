import { expect, test } from 'vitest'
import { mayReadAnswers } from '../../services/protocol/consent.js'

test.each([
  { permissions: 'read_answers', appReadsAnswers: true, may: true, why: 'its user consented, and the app may ask' },
  { permissions: 'read_answers', appReadsAnswers: false, may: false, why: 'the app may not ask any more' },
  { permissions: '', appReadsAnswers: true, may: false, why: 'its user was shown no such thing' },
  { permissions: '', appReadsAnswers: false, may: false, why: 'nobody spoke of answers' },
] as const)('that a token reads answers is $may when $why', ({ may, why: _, ...facts }) => {
  expect(mayReadAnswers(facts)).toBe(may)
})
