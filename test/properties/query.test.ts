import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { Problem } from '../../gateway/errors.js'
import { parsePositiveInteger, parseQuery } from '../../gateway/query.js'

const printable = fc
  .string({ unit: 'grapheme', minLength: 1, maxLength: 40 })
  .filter((text) => !/[\p{Cc}\p{Cs}]/u.test(text))

function outcome<T>(work: () => T): { readonly value: T } | { readonly problem: string } {
  try {
    return { value: work() }
  } catch (error) {
    if (error instanceof Problem) return { problem: error.type }
    throw error
  }
}

describe('the query parser', () => {
  test('returns every parameter as it was before encoding', () => {
    fc.assert(
      fc.property(
        fc.uniqueArray(fc.tuple(printable, printable), { selector: ([name]) => name, maxLength: 8 }),
        (pairs) => {
          const raw = pairs.map(([name, value]) => `${encodeURIComponent(name)}=${encodeURIComponent(value)}`).join('&')
          const params = parseQuery(raw)
          for (const [name, value] of pairs) expect(params.required(name, 1000)).toBe(value)
        },
      ),
    )
  })

  test('reads what URLSearchParams writes', () => {
    fc.assert(
      fc.property(fc.dictionary(printable, printable, { maxKeys: 8 }), (pairs) => {
        const params = parseQuery(new URLSearchParams(pairs).toString())
        for (const [name, value] of Object.entries(pairs)) expect(params.required(name, 1000)).toBe(value)
      }),
    )
  })

  test('either reads a text or refuses it as invalid_argument, and never returns control characters', () => {
    const piece = fc.oneof(
      fc.string({ maxLength: 10 }),
      fc.string({ unit: 'binary', maxLength: 10 }),
      fc.constantFrom(
        '%',
        '%2',
        '%zz',
        '%00',
        '%ff',
        '%C3%28',
        '%ED%A0%80',
        '+',
        '=',
        '&',
        '&&',
        '==',
        'a=',
        '=a',
        '%26',
        '%3D',
        '\0',
        '\u{1f600}',
        '\ud800',
      ),
    )
    fc.assert(
      fc.property(fc.array(piece, { maxLength: 12 }), (pieces) => {
        const raw = pieces.join('')
        const result = outcome(() => parseQuery(`a=1&${raw}`).optional('x', 512))
        if ('problem' in result) expect(result.problem).toBe('invalid_argument')
        else expect(result.value).not.toMatch(/[\p{Cc}]/u)
      }),
    )
  })

  test('refuses a parameter given twice wherever its second copy stands and however it is encoded', () => {
    const encode = (text: string) =>
      [...Buffer.from(text)].map((byte) => `%${byte.toString(16).padStart(2, '0')}`).join('')
    fc.assert(
      fc.property(
        fc.array(fc.constantFrom('x=1', 'y', '=', 'z=%20'), { maxLength: 6 }),
        fc.boolean(),
        fc.nat(6),
        (others, isEncoded, at) => {
          const parts = ['appid=1', ...others]
          parts.splice(at % (parts.length + 1), 0, `${isEncoded ? encode('appid') : 'appid'}=2`)
          expect(outcome(() => parseQuery(parts.join('&')).required('appid', 10))).toEqual({
            problem: 'invalid_argument',
          })
        },
      ),
    )
  })

  test('has no parameter that was not sent, whatever objects inherit', () => {
    for (const name of Object.getOwnPropertyNames(Object.prototype))
      expect(parseQuery('a=1').optional(name, 10)).toBe('')
  })
})

describe('a positive integer', () => {
  test('is read exactly up to 2^53-1', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: Number.MAX_SAFE_INTEGER }), (value) => {
        expect(parsePositiveInteger(String(value))).toBe(value)
      }),
    )
  })

  test('is nothing but digits without a leading zero', () => {
    fc.assert(
      fc.property(fc.string({ maxLength: 12 }), (text) => {
        if (!/^[1-9][0-9]*$/.test(text)) expect(parsePositiveInteger(text)).toBeUndefined()
      }),
    )
  })
})
