import { create, toBinary } from '@bufbuild/protobuf'
import { expect, test } from 'vitest'
import {
  GetSurveyResponseSchema,
  ListSurveysResponseSchema,
  SurveySchema,
} from '../../gen/surveyauth/v1/survey_service_pb.js'
import { Decoder, encode } from '../../services/rpc/large-messages.js'

const response = (title: string, prefix = '长'.repeat(1_000)) =>
  create(GetSurveyResponseSchema, { survey: create(SurveySchema, { id: 7n, title, prefix }), creatorUserId: 5n })
const bytesOf = (title: string, prefix?: string) => toBinary(GetSurveyResponseSchema, response(title, prefix))

test('a large message is encoded once; another one with the same content is encoded by itself', () => {
  const one = response('one')
  const bytes = encode(GetSurveyResponseSchema, one)
  expect(bytes).toEqual(bytesOf('one'))
  expect(encode(GetSurveyResponseSchema, one)).toBe(bytes)
  expect(encode(GetSurveyResponseSchema, response('one'))).not.toBe(bytes)
})

test('equal bytes decode to the same message, and any different byte to another', () => {
  const decoder = new Decoder()
  const first = decoder.decode(GetSurveyResponseSchema, bytesOf('one'))
  expect(first).toEqual(response('one'))
  expect(decoder.decode(GetSurveyResponseSchema, bytesOf('one'))).toBe(first)
  expect(decoder.decode(GetSurveyResponseSchema, bytesOf('onf'))).toEqual(response('onf'))
  expect(decoder.decode(GetSurveyResponseSchema, bytesOf('one', '長'.repeat(1_000))).survey?.prefix[0]).toBe('長')
})

test('a message that differs only in the middle replaces the one before; one that ends differently does not', () => {
  const decoder = new Decoder()
  const pad = '长'.repeat(500)
  const first = decoder.decode(GetSurveyResponseSchema, bytesOf('one', `${pad}a${pad}`))
  const other = decoder.decode(GetSurveyResponseSchema, bytesOf('one', `${pad}b${pad}`))
  expect([first.survey?.prefix[500], other.survey?.prefix[500]]).toEqual(['a', 'b'])
  expect(decoder.decode(GetSurveyResponseSchema, bytesOf('one', `${pad}b${pad}`))).toBe(other)
  const elsewhere = toBinary(GetSurveyResponseSchema, { ...response('one', `${pad}b${pad}`), creatorUserId: 6n })
  expect(decoder.decode(GetSurveyResponseSchema, elsewhere).creatorUserId).toBe(6n)
  expect(decoder.decode(GetSurveyResponseSchema, bytesOf('one', `${pad}b${pad}`))).toBe(other)
})

test('a cached message does not change when the bytes it was decoded from do', () => {
  const decoder = new Decoder()
  const bytes = bytesOf('one')
  decoder.decode(GetSurveyResponseSchema, bytes)
  bytes[900] = 0x41
  expect(decoder.decode(GetSurveyResponseSchema, bytesOf('one'))).toEqual(response('one'))
})

test('bytes of one type are not taken for another', () => {
  const decoder = new Decoder()
  const bytes = toBinary(
    ListSurveysResponseSchema,
    create(ListSurveysResponseSchema, { surveys: [{ title: 'x'.repeat(900) }] }),
  )
  const list = decoder.decode(ListSurveysResponseSchema, bytes)
  expect(list.surveys[0]?.title).toHaveLength(900)
  expect(decoder.decode(SurveySchema, bytes).$typeName).toBe('surveyauth.v1.Survey')
})

test('a small message is decoded each time, and the cache is bounded', () => {
  const decoder = new Decoder()
  const small = bytesOf('small', '')
  expect(decoder.decode(GetSurveyResponseSchema, small)).not.toBe(decoder.decode(GetSurveyResponseSchema, small))
  const large = bytesOf('large')
  const first = decoder.decode(GetSurveyResponseSchema, large)
  const filler = '长'.repeat(100_000)
  for (let n = 0; n < 40; n++) decoder.decode(GetSurveyResponseSchema, bytesOf(`${n}`, filler)) // 12 MB
  expect(decoder.decode(GetSurveyResponseSchema, large)).not.toBe(first)
})
