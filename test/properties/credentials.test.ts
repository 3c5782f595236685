// Credentials: the structure of their text and their key.
import { createHash } from 'node:crypto'
import { crc32 } from 'node:zlib'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  deriveAccessToken,
  deriveCode,
  hashCredential,
  newCredential,
  newId,
  PresentedCredential,
  placeOf,
} from '../../services/token/credentials.js'

const NOW = 1_700_000_000_000
const DAY = 86_400_000

const bytesOf = (size: number) => fc.uint8Array({ minLength: size, maxLength: size })
const sha256 = (text: string) => createHash('sha256').update(text).digest()

describe('a credential', () => {
  it('is found by the key derived from its text, which in codes and tokens begins with their place', () => {
    fc.assert(
      fc.property(bytesOf(32), bytesOf(8), (random, place) => {
        const { text, hash } = newCredential('accessToken', () => random, place)
        expect(text).toMatch(/^sat_[\w-]{60}$/)
        expect(hashCredential('accessToken', text)).toEqual(hash)
        const presented = new PresentedCredential('accessToken', text)
        expect([presented.digest, presented.hash]).toEqual([sha256(text).toString('latin1'), hash])
        expect(new PresentedCredential('refreshToken', text).hash).toBeUndefined()
        expect(Buffer.from(hash)).toEqual(Buffer.concat([place, sha256(text).subarray(0, 24)]))
        expect(Buffer.from(placeOf(hash))).toEqual(Buffer.from(place))

        const secret = newCredential('secret', () => random)
        expect(secret.text).toMatch(/^sas_[\w-]{49}$/)
        expect(Buffer.from(secret.hash)).toEqual(sha256(secret.text))
        expect(Buffer.from(hashCredential('secret', secret.text) ?? [])).toEqual(sha256(secret.text))
      }),
    )
  })

  it('keeps all of its 256 random bits in its text', () => {
    const place = new Uint8Array(8)
    const seen = new Set<string>()
    for (let bit = 0; bit < 256; bit++) {
      const random = new Uint8Array(32)
      random[bit >> 3] = 1 << (bit & 7)
      seen.add(newCredential('refreshToken', () => random, place).text)
    }
    expect(seen.size).toBe(256)
  })

  it('that a refresh yields is the same for the same refresh token, grant and end, and another for any other', () => {
    const place = placeAt(NOW)
    const of = (refreshToken = 'sart_a', grantId = 'grant_a', endsAtMs = NOW) =>
      deriveAccessToken(refreshToken, place, grantId, endsAtMs)
    const { text, hash } = of()
    expect(of()).toEqual({ text, hash })
    expect(hashCredential('accessToken', text)).toEqual(hash)
    expect(Buffer.from(placeOf(hash))).toEqual(place)
    const others = [of('sart_b'), of('sart_a', 'grant_b'), of('sart_a', 'grant_a', NOW + 1)]
    expect(new Set([text, ...others.map((other) => other.text)]).size).toBe(4)
  })

  it('without the place that its kind has, or with one that it does not have, has no key', () => {
    const [plain, placed] = [Buffer.alloc(32, 7), Buffer.alloc(40, 7)].map((body) => body.toString('base64url'))
    for (const [kind, body] of [
      ['refreshToken', `sart_${plain}`],
      ['secret', `sas_${placed}`],
    ] as const) {
      const checksum = Buffer.alloc(4)
      checksum.writeUInt32BE(crc32(body))
      expect(hashCredential(kind, body + checksum.toString('base64url'))).toBeUndefined()
    }
  })

  it('that is forged with a valid checksum has the same key every time it is sent', () => {
    const forged = fc.string({ minLength: 54, maxLength: 54, unit: 'binary' }).map((body) => `sat_${body}`)
    fc.assert(
      fc.property(forged, bytesOf(8192), (body, noise) => {
        const checksum = Buffer.alloc(4)
        checksum.writeUInt32BE(crc32(body))
        const text = body + checksum.toString('base64url')
        const key = hashCredential('accessToken', text)
        Buffer.allocUnsafe(4096).set(noise.subarray(0, 4096)) // garbage in the memory of the next key
        expect(hashCredential('accessToken', text)).toEqual(key)
        const place = Buffer.from(body.slice(4, 15), 'base64url').subarray(0, 8)
        const expected = Buffer.concat([sha256(text).subarray(0, 8), sha256(text).subarray(0, 24)])
        expected.set(place)
        if (text.length === 4 + 54 + 6) expect(key && Buffer.from(key)).toEqual(expected)
      }),
    )
  })

  it('with one character changed, added or taken away, or of another kind, has no key', () => {
    const { text } = newCredential('accessToken', (size) => new Uint8Array(size), placeAt(1_700_000_000_000))
    fc.assert(
      fc.property(fc.nat(text.length - 1), fc.constantFrom('A', 'x', '-', ''), (at, character) => {
        const mistyped = text.slice(0, at) + character + text.slice(at + 1)
        fc.pre(mistyped !== text)
        expect(hashCredential('accessToken', mistyped)).toBeUndefined()
        expect(hashCredential('accessToken', `${text}${character || 'A'}`)).toBeUndefined()
      }),
    )
    expect(hashCredential('refreshToken', text)).toBeUndefined()
  })
})

/** Of this moment, ms since 1970. */
function placeAt(ms: number): Buffer {
  const place = Buffer.alloc(8)
  place.writeUIntBE(ms, 0, 6)
  return place
}

describe('a place', () => {
  const random = (size: number) => new Uint8Array(size).fill(9)

  const formAt = (ms: number) => `${placeAt(ms).subarray(0, 6).toString('base64url')}and more`

  it('orders the keys of codes and of tokens by when their forms were shown', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1 - DAY, max: DAY - 2 }), (at) => {
        const codes = [NOW + at, NOW + at + 1].map((ms) => deriveCode('session', [formAt(ms), 'app'], 0, NOW))
        const tokens = codes.map(({ hash }) => newCredential('accessToken', random, placeOf(hash)))
        for (const [one, other] of [codes, tokens]) {
          expect(Buffer.compare(one?.hash ?? Buffer.alloc(0), other?.hash ?? Buffer.alloc(0))).toBe(-1)
        }
      }),
    )
  })

  it('is the same for a code, its grant and its tokens', () => {
    const { hash } = deriveCode('session', [formAt(NOW), 'app'], 0, NOW)
    const place = placeOf(hash)
    expect(placeOf(newCredential('refreshToken', random, place).hash)).toEqual(place)
    const id = newId('grant', random, place)
    expect(Buffer.from(id.slice('grant_'.length), 'base64url').subarray(0, 8)).toEqual(place)
  })

  it('of a code begins with the time of its form, and differs from others of the same moment', () => {
    const codes = ['1', '2', '3', '4'].map((more) => deriveCode('session', [formAt(NOW) + more, 'app'], 0, NOW))
    for (const { hash } of codes) expect(placeOf(hash).subarray(0, 6)).toEqual(placeAt(NOW).subarray(0, 6))
    expect(new Set(codes.map(({ hash }) => placeOf(hash).join())).size).toBe(4)
    expect(new Set(codes.map(({ text }) => text)).size).toBe(4)
    expect(deriveCode('session', [`${formAt(NOW)}1`, 'app'], 0, NOW + DAY - 1)).toEqual(codes[0])
  })

  it('is arbitrary for a form without a time of that day', () => {
    const ids = ['', 'short', 'not base64url: ä', '0f8fad5b-d9cb-469f-a165-70867728950e', formAt(0), formAt(NOW - DAY)]
    const places = ids.flatMap((id) =>
      Array.from({ length: 50 }, (_, n) => {
        const { text, hash } = deriveCode('session', [id, String(n)], 0, NOW)
        expect(hashCredential('code', text)).toEqual(hash)
        return placeOf(hash).subarray(0, 4).join()
      }),
    )
    expect(new Set(places).size).toBe(places.length)
  })
})
