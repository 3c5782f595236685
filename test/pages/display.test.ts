import { describe, expect, test } from 'vitest'
import {
  callbackHost,
  displayDay,
  displayDuration,
  displayName,
  displayTime,
  displayUser,
  displayWait,
  initial,
} from '../../gateway/pages/display.js'
import { preferredLanguage } from '../../gateway/pages/language.js'

describe('a name is shown', () => {
  test.each([
    ['as it is', '小明 O’Neil', '小明 O’Neil'],
    ['by its fallback when blank', ' \t ', 'app1'],
    ['by its fallback when it holds letters without ink alone', '\u3164\u2800\uffa0', 'app1'],
    ['whole at 60 graphemes', 'a'.repeat(60), 'a'.repeat(60)],
    ['cut at 61', 'a'.repeat(61), `${'a'.repeat(60)}…`],
    ['cut at 61 in Chinese', '问'.repeat(61), `${'问'.repeat(60)}…`],
    [
      'cut at 61 in Hangul of which three letters are one',
      '한'.normalize('NFD').repeat(61),
      `${'한'.normalize('NFD').repeat(60)}…`,
    ],
    ['without cutting an emoji in two', '👩‍👩‍👧‍👦'.repeat(61), `${'👩‍👩‍👧‍👦'.repeat(60)}…`],
    ['with overrides made visible', 'a\u202eb\u0000c\u2028d', 'a\ufffdb\ufffdc\ufffdd'],
    ['with stacked accents cut', `a${'\u0301'.repeat(500)}`, `a${'\u0301'.repeat(11)}`],
  ])('%s', (_, name, shown) => {
    expect(displayName(name, 'app1')).toBe(shown)
  })
})

test('a badge holds one grapheme', () => {
  expect(initial('écho')).toBe('É')
  expect(initial('问卷')).toBe('问')
  expect(initial('e\u0301cho')).toBe('E\u0301')
})

test('a host with look-alike letters is shown in Punycode', () => {
  expect(callbackHost('https://аpple.example:8443/x')).toBe('xn--pple-43d.example:8443')
})

test.each([
  [2_592_000, '30 days', '30 天'],
  [172_800, '2 days', '2 天'],
  [172_799, '47 hours', '47 小时'],
  [7199, '119 minutes', '119 分钟'],
  [60, '60 seconds', '60 秒'],
  [1, '1 second', '1 秒'],
])('%d seconds read %s, %s', (seconds, en, zh) => {
  expect(displayDuration(seconds, 'en')).toBe(en)
  expect(displayDuration(seconds, 'zh')).toBe(zh)
})

test.each([
  [40, '40 seconds', '40 秒'],
  [120, '2 minutes', '2 分钟'],
  [179, '3 minutes', '3 分钟'],
  [663, '12 minutes', '12 分钟'],
  [7201, '3 hours', '3 小时'],
])('a wait of %d seconds is given as %s, %s, never as less', (seconds, en, zh) => {
  expect(displayWait(seconds, 'en')).toBe(en)
  expect(displayWait(seconds, 'zh')).toBe(zh)
})

test('a time is shown with its UTC offset', () => {
  const at = Date.UTC(2026, 10, 21, 18, 5)
  expect(displayTime(at, 'en')).toEqual({ iso: '2026-11-21T18:05:00.000Z', text: '21 Nov 2026, 18:05 UTC' })
  expect(displayTime(at, 'zh').text).toBe('2026年11月22日 02:05 UTC+8')
  expect([displayDay(at, 'en').text, displayDay(at, 'zh').text]).toEqual(['21 Nov 2026', '2026年11月22日'])
})

test.each([
  [undefined, 'en'],
  ['', 'en'],
  ['fr', 'en'],
  ['zh-TW', 'zh'],
  ['zh-Hant-HK,en;q=0.9', 'zh'],
  ['en;q=0.5, zh;q=0.8', 'zh'],
  ['en, zh', 'en'],
  ['zh;q=0', 'en'],
  ['fr;q=1, zh;q=0.1', 'zh'],
  ['zh;q=nonsense, en;q=0.1', 'en'],
])('Accept-Language %j prefers %s', (header, language) => {
  expect(preferredLanguage(header)).toBe(language)
})

test('a user without a name is shown by the nickname alone, and by the placeholder only without one', () => {
  const shown = (nickname: string) => {
    const user = { nickname, username: '~user_1', avatar: '' }
    const { nickname: first, username: second } = displayUser(user, new URL('https://here.example'))
    return [first, second]
  }
  expect(shown('Eva')).toEqual(['Eva', 'Eva'])
  expect(shown('')).toEqual(['~user_1', '~user_1'])
})
