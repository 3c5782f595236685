import { expect, test } from 'vitest'
import { mayAskForAnswers, mayReadAnswers } from '../../services/protocol/consent.js'

test.each([
  ['its user has consented, and the app may ask', 'read_answers', true, true, true],
  ['the app may not ask any more', 'read_answers', false, true, false],
  ['the operator has switched answers off', 'read_answers', true, false, false],
  ['neither lets the app ask', 'read_answers', false, false, false],
  ['its user was asked for less', '', true, true, false],
  ['nobody has ever spoken of answers', '', false, true, false],
] as const)(
  'when %s, a token with permissions %j reads answers: $4',
  (_, permissions, appReadsAnswers, areAnswersOn, may) => {
    expect(mayReadAnswers({ permissions, appReadsAnswers, areAnswersOn })).toBe(may)
    expect(mayAskForAnswers({ appReadsAnswers, areAnswersOn })).toBe(appReadsAnswers && areAnswersOn)
  },
)
