import { create, type DescField, type DescMessage, type JsonObject, type Message, ScalarType } from '@bufbuild/protobuf'
import { StructSchema, TimestampSchema } from '@bufbuild/protobuf/wkt'
import { createValidator } from '@bufbuild/protovalidate'
import fc from 'fast-check'
import { describe, expect, onTestFinished, test } from 'vitest'
import { LimitService } from '../../gen/surveyauth/internal/v1/limit_service_pb.js'
import { AccountService, SignInRequestSchema } from '../../gen/surveyauth/v1/account_service_pb.js'
import {
  AddAppSecretRequestSchema,
  AdminService,
  CreateAppRequestSchema,
  CreateUserRequestSchema,
  SetUserPasswordRequestSchema,
  UpdateAppRequestSchema,
  UpdateUserRequestSchema,
} from '../../gen/surveyauth/v1/admin_service_pb.js'
import { SurveySchema } from '../../gen/surveyauth/v1/survey_pb.js'
import { ImportSurveysRequestSchema, SurveyService } from '../../gen/surveyauth/v1/survey_service_pb.js'
import { TokenService } from '../../gen/surveyauth/v1/token_service_pb.js'
import type { Call } from '../../services/rpc/dispatcher.js'
import { compileRules as compile, violationInWords } from '../../services/rpc/validation.js'
import { createAdminHandlers } from '../../services/token/admin/admin-service.js'
import type { TokenDeps } from '../../services/token/deps.js'
import { openSqliteTokenStore } from '../../services/token/store/sqlite/sqlite-token-store.js'
import { appRow, byOperator, NOW, secretRow } from '../store/token-store-verbs.js'

const library = createValidator()
const requests = [TokenService, AccountService, AdminService, LimitService, SurveyService].flatMap((service) =>
  service.methods.map(({ input }) => input),
)

/** Strings around every bound of the rules, in characters, UTF-16 units and bytes, and some that match the patterns. */
const texts = fc.oneof(
  fc.constantFrom(
    '',
    'a',
    'ann',
    'code',
    'https://example.com/a.png',
    'http://x',
    '00ff',
    'radio',
    'pass\tword',
    '小明',
    '👩‍👩‍👧',
  ),
  fc
    .tuple(
      fc.constantFrom('a', 'é', '好', '🦊'),
      fc.constantFrom(
        7,
        8,
        16,
        17,
        63,
        64,
        65,
        100,
        101,
        128,
        129,
        300,
        301,
        341,
        342,
        512,
        513,
        1024,
        1025,
        2048,
        2049,
      ),
    )
    .map(([character, length]) => character.repeat(length)),
  fc.string({ unit: 'grapheme', maxLength: 12 }).filter((text) => !text.includes('\0')),
)
const numbers = fc.constantFrom(-1, 0, 1, 99, 1000, 2 ** 31 - 1)
const bigNumbers = fc.constantFrom(
  -1n,
  0n,
  1n,
  253_402_300_799n,
  253_402_300_800n,
  9_007_199_254_740_991n,
  9_007_199_254_740_992n,
)

/** Timestamps that the library accepts, whatever their seconds. */
const times = fc.record({ seconds: fc.constantFrom(-1n, 0n, 253_402_300_799n), nanos: fc.constantFrom(0, 999_999_999) })

function anyMessage(desc: DescMessage, depth = 0): fc.Arbitrary<Message> {
  if (desc.typeName === TimestampSchema.typeName) return times.map((init) => create(TimestampSchema, init))
  const fields = Object.fromEntries(desc.fields.map((field) => [field.localName, anyValue(field, depth)]))
  return fc.record(fields, { requiredKeys: [] }).map((init) => create(desc, init as never))
}

function anyValue(field: DescField, depth: number): fc.Arbitrary<unknown> {
  switch (field.fieldKind) {
    case 'message':
      if (field.message.typeName === StructSchema.typeName) return fc.constantFrom({}, { a: [null, { b: 'x' }] })
      return anyMessage(field.message, depth + 1)
    case 'enum':
      return fc.constantFrom(0, 1, 2, 3, 99)
    case 'list':
      return fc.array(
        field.listKind === 'message'
          ? anyMessage(field.message, depth + 1)
          : field.listKind === 'scalar'
            ? anyScalar(field.scalar)
            : fc.constantFrom(0, 1, 99),
        { maxLength: depth === 0 ? 22 : 3 },
      )
    case 'scalar':
      return anyScalar(field.scalar)
    case 'map':
      throw new Error('no message has a map')
  }
}

function anyScalar(scalar: ScalarType): fc.Arbitrary<unknown> {
  if (scalar === ScalarType.STRING) return texts
  if (scalar === ScalarType.BOOL) return fc.boolean()
  if (scalar === ScalarType.INT64) return bigNumbers
  if (scalar === ScalarType.BYTES) return fc.uint8Array({ maxLength: 4 })
  return numbers
}

function compileRules(desc: DescMessage) {
  const validate = compile(desc)
  return (message: Message) => {
    const violation = validate(message)
    return violation && violationInWords(violation)
  }
}

describe('the compiled rules', () => {
  test.each(requests.map((desc) => ({ desc, name: desc.name })))('agree with protovalidate on $name', ({ desc }) => {
    const validate = compileRules(desc)
    const seen = { valid: 0, invalid: 0 }
    fc.assert(
      fc.property(anyMessage(desc), (message) => {
        const { kind } = library.validate(desc, message)
        const violation = validate(message)
        if (kind === 'error') throw new Error('the library could not judge')
        seen[kind] += 1
        expect({ message, verdict: violation === undefined ? 'valid' : 'invalid' }).toEqual({ message, verdict: kind })
      }),
      { numRuns: 60 },
    )
    expect(seen.valid + seen.invalid).toBeGreaterThan(0)
  })

  test('name the field and what it must be', () => {
    const validate = compileRules(CreateUserRequestSchema)
    expect(validate(create(CreateUserRequestSchema, { username: 'ann', password: 'short' }))).toBe(
      'password: at least 8 characters',
    )
    expect(validate(create(CreateUserRequestSchema, { username: 'a b', password: 'long enough' }))).toBe(
      'username: only letters of ASCII, digits and . _ @ + - are allowed',
    )
    const refusedAvatar = 'avatar: must begin with https:// or http://, and hold no spaces or characters beyond ASCII'
    const withAvatar = { username: 'ann', password: 'long enough', avatar: 'ftp://a.example/' }
    expect(validate(create(CreateUserRequestSchema, withAvatar))).toBe(refusedAvatar)
    const update = (change: { nickname?: string; avatar?: string }) =>
      compileRules(UpdateUserRequestSchema)(create(UpdateUserRequestSchema, { username: 'ann', ...change }))
    expect(update({ avatar: 'ftp://a.example/' })).toBe(refusedAvatar)
    expect(update({ nickname: 'x'.repeat(101) })).toBe('nickname: at most 100 characters')
    expect(update({ nickname: '', avatar: '' })).toBeUndefined()
    expect(compileRules(SurveySchema)(create(SurveySchema, { hash: 'a b' }))).toBe(
      'hash: only letters of ASCII, digits and . _ ~ - are allowed',
    )
  })

  test.each([CreateUserRequestSchema, SetUserPasswordRequestSchema])(
    'refuse a password with control characters, which a form cannot carry: $name',
    (schema) => {
      const requestWith = (password: string) => create<DescMessage>(schema, { username: 'ann', password } as never)
      for (const control of ['\t', '\n', '\u001f', '\u007f', '\u0085']) {
        expect(compileRules(schema)(requestWith(`pass${control}word`))).toBe(
          'password: must not contain control characters',
        )
      }
      expect(compileRules(schema)(requestWith('密码 pass\u00a0word\u2028'))).toBeUndefined()
    },
  )

  test.each([CreateAppRequestSchema, UpdateAppRequestSchema, AddAppSecretRequestSchema])(
    'refuse a blank name: $name',
    (schema) => {
      const verdict = (name: string) =>
        compileRules(schema)(
          create<DescMessage>(schema, { appid: 'app', redirectUris: ['https://a.example/'], name } as never),
        )
      for (const blank of [' ', '\t\n', '\u00a0\u3000', '\u200b\ufeff', '\u3164', '\u2800 ', '\u115f\u1160\uffa0']) {
        expect(verdict(blank), JSON.stringify(blank)).toBe('name: must not be blank')
      }
      for (const name of [' a ', '问卷', '🗒️']) expect(verdict(name), name).toBeUndefined()
    },
  )

  test('limit bytes and items, and check enum values', () => {
    const signIn = (password: string) =>
      compileRules(SignInRequestSchema)(create(SignInRequestSchema, { username: 'ann', password }))
    expect([signIn('好'.repeat(341)), signIn('好'.repeat(342))]).toEqual([undefined, 'password: at most 1024 bytes'])
    const app = (count: number) => {
      const redirectUris = Array.from({ length: count }, (_, index) => `https://a.example/${index}`)
      return compileRules(CreateAppRequestSchema)(create(CreateAppRequestSchema, { name: 'a', redirectUris }))
    }
    expect([app(20), app(21)]).toEqual([undefined, 'redirect_uris: at most 20 items'])
    const survey = (state: number) => compileRules(SurveySchema)(create(SurveySchema, { title: 't', state }))
    expect([survey(2), survey(99)]).toEqual([undefined, 'state: not a value of SurveyState'])
  })

  test('accept control characters in a password at sign-in', () => {
    const request = create(SignInRequestSchema, { username: 'ann', password: 'pass\tword' })
    expect(compileRules(SignInRequestSchema)(request)).toBeUndefined()
  })

  test('name the position inside lists of messages', () => {
    const title = 'x'.repeat(20_001)
    const survey = create(SurveySchema, { pages: [{}, { questions: [{ type: 'radio', title }] }] })
    const request = create(ImportSurveysRequestSchema, { ownerUserId: 'u', surveys: [survey] })
    expect(compileRules(ImportSurveysRequestSchema)(request)).toMatch(
      /\[0\]\.pages\[1\]\.questions\[0\]\.title: at most 20000/,
    )
  })

  test.each([
    [-62_135_596_800n, 0, 'a time'],
    [-62_135_596_801n, 0, 'none'],
    [253_402_300_799n, 999_999_999, 'a time'],
    [253_402_300_800n, 0, 'none'],
    [10n ** 17n, 0, 'none'],
    [0n, -1, 'none'],
    [0n, 1_000_000_000, 'none'],
  ])('accept only valid times: %d s and %d ns are %s', (seconds, nanos, what) => {
    const request = create(AddAppSecretRequestSchema, { appid: 'a', name: 'b', expireTime: { seconds, nanos } })
    expect(compileRules(AddAppSecretRequestSchema)(request)).toBe(
      what === 'none' ? 'expire_time: must be a time between the years 1 and 9999' : undefined,
    )
  })

  const nested = (depth: number): object => (depth === 1 ? {} : { in: nested(depth - 1) })
  const names = (count: number) => Object.fromEntries(Array.from({ length: count }, (_, at) => [`name${at}`, at]))
  test.each([
    ['200 members', names(200), undefined],
    ['201 members', names(201), 'extra: at most 200 members'],
    ['a name of 128 characters', { ['x'.repeat(128)]: 1 }, undefined],
    ['a name of 129 characters', { a: { ['x'.repeat(129)]: 1 } }, 'extra.a: a name is longer than 128 characters, or'],
    ['a name that JavaScript gives a meaning', JSON.parse('{"a": [{"__proto__": 1}]}'), 'extra.a[0]: a name is'],
    ['20 levels', nested(20), undefined],
    ['21 levels', nested(21), /^extra(\.in){20}: nested more than 20 deep$/],
    ['half a character', { a: ['\ud800'] }, 'extra.a[0]: holds one half of a surrogate pair'],
    ['half a character in a name', { '\ud800': 1 }, 'extra: holds one half'],
    ['U+0000', { a: { b: '\0' } }, 'extra.a.b: must not contain a NUL character'],
    ['no number', { a: Number.NaN }, 'extra.a: has more digits than can be kept'],
  ])('bound what is kept as it came: %s', (_, extra, refusal) => {
    const told = compileRules(SurveySchema)(create(SurveySchema, { extra: extra as JsonObject }))
    if (refusal === undefined) expect(told).toBeUndefined()
    else expect(told).toMatch(refusal)
  })

  test('refuse U+0000 in a text, which not every database can store', () => {
    const request = create(CreateUserRequestSchema, { username: 'ann', password: 'long enough', nickname: 'a\0b' })
    expect(compileRules(CreateUserRequestSchema)(request)).toBe('nickname: must not contain a NUL character')
  })
})

test('a redirect_uri registered under older rules may stay, but no other of its kind can be added', async () => {
  const store = openSqliteTokenStore({ file: ':memory:' })
  onTestFinished(() => store.close())
  const [old, added] = ['https://app1.example/?code=1', 'https://app1.example/added']
  await store.createApp(appRow('app1', { redirectUris: [old] }), secretRow('app1'), byOperator)
  const { updateApp } = createAdminHandlers({ store, now: () => NOW } as unknown as TokenDeps)
  const register = (...redirectUris: string[]) =>
    updateApp(create(UpdateAppRequestSchema, { appid: 'app1', redirectUris }), {
      requestId: 'request',
      callerName: 'uid:1',
    } as Call)
  expect((await register(old, added)).app?.redirectUris).toEqual([old, added])
  await expect(register('https://app1.example/?code=2')).rejects.toThrow('must not have code, state or error')
  await register(added)
  await expect(register(old)).rejects.toThrow('must not have code, state or error')
})
