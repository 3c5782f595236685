import { readdirSync, readFileSync } from 'node:fs'
import { create, equals, fromBinary, toBinary } from '@bufbuild/protobuf'
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { QUESTION_TYPES, surveyFromJson } from '../../gateway/api/survey-from-json.js'
import { surveyBytes, surveyToJson } from '../../gateway/api/survey-to-json.js'
import { SurveyScene, SurveySchema, SurveyState } from '../../gen/surveyauth/v1/survey_pb.js'
import { toDraft } from '../../services/survey/import-surveys.js'

const published = JSON.parse(readFileSync('test/harness/published-survey.json', 'utf8'))
const folder = 'examples/surveys'
const examples = readdirSync(folder).map((name) => JSON.parse(readFileSync(`${folder}/${name}`, 'utf8')))

test.each(examples.map((json) => [json.title, json]))('%s survives a round trip through JSON', (_title, json) => {
  const survey = surveyFromJson(json)
  const written = surveyToJson(survey, 5)
  expect(written).toMatchObject(json)
  expect(equals(SurveySchema, surveyFromJson(JSON.parse(JSON.stringify(written))), survey)).toBe(true)
})

test('the examples use every type of question', () => {
  const used = new Set(
    examples.flatMap((json) => surveyFromJson(json).pages.flatMap((page) => page.questions.map((q) => q.type))),
  )
  expect([...used].sort()).toEqual([...QUESTION_TYPES].sort())
})

test('keys come in the order of the contract, derived ones included', () => {
  const question = { type: 'star', title: 'q', starNum: 5, starBeginNum: 1 }
  const matrix = { type: 'matrix_radio', title: 'm', options: [{ text: 'a' }], subTitles: [{ text: 'r' }] }
  const json = { title: 't', state: 2, startTime: 1_788_192_000, pages: [{ questions: [question, matrix] }] }
  expect(JSON.stringify(surveyToJson(surveyFromJson(json), 9))).toBe(
    '{"id":0,"hash":"","scene":"1","title":"t","prefix":"","suffix":"","state":2,"page_count":1,"topic_count":2,' +
      '"startTime":1788192000,"endTime":0,"started_at":"2026-09-01 00:00:00","end_at":"","createTime":0,"updateTime":0,' +
      '"creator_user_id":9,"pages":[{"id":"p-1","index":"1","questions":[' +
      '{"id":"q-1-1","index":1,"type":"star","sub_type":"","title":"q","description":"","required":false,"goto":"",' +
      '"options":[],"starNum":5,"starBeginNum":1},' +
      '{"id":"q-1-2","index":2,"type":"matrix_radio","sub_type":"","title":"m","description":"","required":false,' +
      '"goto":"","options":[{"id":"o-1","text":"a","exclusive":false,"goto":""}],"subTitles":[{"id":"s-1","text":"r"}]}]}]}',
  )
})

test('a star question always says how many stars it has, and where they begin', () => {
  const questions = [{ type: 'star' }, { type: 'star', starNum: 10 }, { type: 'radio' }]
  const survey = surveyFromJson({ title: 't', pages: [{ questions }] })
  expect(surveyToJson(survey, 0)).toMatchObject({
    pages: [{ questions: [{ starNum: 5, starBeginNum: 1 }, { starNum: 10, starBeginNum: 1 }, { type: 'radio' }] }],
  })
  expect(survey.pages[0]?.questions[2]).not.toHaveProperty('starNum', 5)
  const ofAnRpc = create(SurveySchema, { title: 't', pages: [{ questions: [{ type: 'star' }] }] })
  expect(surveyToJson(ofAnRpc, 0)).toMatchObject({ pages: [{ questions: [{ starNum: 5, starBeginNum: 1 }] }] })
})

test('ids, indexes and numbers of stars that are given are kept', () => {
  const star = { id: 's', index: 0, type: 'star', starNum: 3, starBeginNum: -1 }
  const matrix = { id: 'm', index: -7, type: 'matrix_radio', options: [{ id: 'o' }], subTitles: [{ id: 'r' }] }
  const pages = [{ id: 'p', index: '甲', questions: [star, matrix] }]
  expect(surveyToJson(surveyFromJson({ title: 't', pages }), 0)).toMatchObject({ pages })
})

test.each(['1', '3', '4', '5', '6', '7', '8', '9'])('scene %j is text, read from text or a number', (scene) => {
  for (const given of [scene, Number(scene)])
    expect(surveyToJson(surveyFromJson({ title: 't', scene: given }), 0)).toMatchObject({ scene })
})

test('a scene that is missing, in JSON or in a call, is a survey', () => {
  expect(surveyToJson(surveyFromJson({ title: 't' }), 0)).toMatchObject({ scene: '1' })
  const { document } = toDraft(create(SurveySchema, { title: 't' }), 0)
  expect(fromBinary(SurveySchema, document).scene).toBe(SurveyScene.SURVEY)
})

test('ids that are made are not among those that are given: where one is taken, the next free one is made', () => {
  const text = { type: 'text' }
  const rows = { type: 'matrix_radio', options: [{ id: 'o-2' }, {}, {}], subTitles: [{}, { id: 's-1' }, { id: 'o-3' }] }
  const pages = [
    { id: 'p-2', questions: [{ ...text, id: 'q-1-2' }, text, text, { ...text, id: 'q-2-1' }] },
    { questions: [rows, text] },
    {},
    { id: 'p-4' },
  ]
  const made = surveyFromJson({ title: 't', pages }).pages
  expect(made.map(({ id }) => id)).toEqual(['p-2', 'p-3', 'p-5', 'p-4'])
  expect(made.map(({ questions }) => questions.map(({ id }) => id))).toEqual([
    ['q-1-2', 'q-1-3', 'q-1-4', 'q-2-1'],
    ['q-2-2', 'q-2-3'],
    [],
    [],
  ])
  const matrix = made[1]?.questions[0]
  expect(matrix?.options.map(({ id }) => id)).toEqual(['o-2', 'o-4', 'o-5'])
  expect(matrix?.subTitles.map(({ id }) => id)).toEqual(['s-2', 's-1', 'o-3'])
})

test.each([1, 1_000])('the bytes of a survey with %i questions are its JSON, for whatever app', (count) => {
  const questions = Array.from({ length: count }, () => ({ type: 'text', title: '满意度' }))
  const survey = surveyFromJson({ title: '调查', pages: [{ questions }] })
  for (const creator of [1, 1, 2]) {
    const bytes = [surveyBytes(survey, creator)].flat().join('')
    expect(JSON.parse(Buffer.from(bytes, 'latin1').toString())).toEqual(surveyToJson(survey, creator))
  }
})

test('the published record comes out as it went in, values and types, also through the bytes in which it is stored', () => {
  const survey = surveyFromJson(published)
  expect(surveyToJson(survey, published.creator_user_id)).toEqual(published)
  const stored = fromBinary(SurveySchema, toBinary(SurveySchema, survey))
  expect(surveyToJson(stored, published.creator_user_id)).toEqual(published)
  expect(JSON.parse(Buffer.from(surveyBytes(stored, 1000), 'latin1').toString())).toEqual(published)
})

test('members that have no field of their own come out as they went in, wherever they are', () => {
  const bare = { id: 'x', index: 7, type: 'matrix_radio', options: [{ id: 'o' }], subTitles: [{ id: 's' }] }
  const own = surveyToJson(surveyFromJson({ title: 't', pages: [{ id: 'p', questions: [bare] }] }), 0)
  const members = fc.dictionary(
    fc.oneof(
      fc.string({ unit: 'grapheme', maxLength: 40 }).filter((name) => name !== '__proto__' && !isOwn(name)),
      fc.constantFrom('extra', 'subType', '$typeName', '$unknown', 'toString', 'constructor', 'length'),
    ),
    fc.jsonValue({ maxDepth: 4, stringUnit: 'grapheme' }),
    { maxKeys: 5 },
  )
  fc.assert(
    fc.property(members, members, members, members, members, (ofSurvey, ofPage, ofQuestion, ofOption, ofRow) => {
      const given = structuredClone(own) as { pages: [{ questions: [{ options: [object]; subTitles: [object] }] }] }
      const [page] = given.pages
      const [question] = page.questions
      Object.assign(question.options[0], ofOption)
      Object.assign(question.subTitles[0], ofRow)
      Object.assign(question, ofQuestion)
      Object.assign(page, ofPage)
      Object.assign(given, ofSurvey)
      const stored = fromBinary(SurveySchema, toBinary(SurveySchema, surveyFromJson(given)))
      expect(JSON.parse(Buffer.from(surveyBytes(stored, 0), 'latin1').toString())).toEqual(
        JSON.parse(JSON.stringify(given)),
      )
    }),
  )
})

/** A name that has a field of its own somewhere in the record. */
const isOwn = (name: string) => JSON.stringify(published).includes(JSON.stringify(name))

test('what has a field of its own is shown rather than what `extra` holds under that name', () => {
  const extra = { id: 9, title: 'x', creator_user_id: 9, pages: [], text: 'x', goto: { id: 'p' }, more: null }
  const question = { id: 'q', type: 'radio', options: [{ id: 'o', extra }], subTitles: [{ id: 's', extra }], extra }
  const survey = create(SurveySchema, { title: 't', pages: [{ id: 'p', questions: [question], extra }], extra })
  const shown = surveyToJson(survey, 5)
  const goto = { id: 'p' }
  expect(shown).toMatchObject({
    id: 0,
    title: 't',
    more: null,
    creator_user_id: 5,
    pages: [
      {
        id: 'p',
        more: null,
        questions: [
          { id: 'q', title: '', goto, options: [{ id: 'o', text: '', goto }], subTitles: [{ id: 's', text: '' }] },
        ],
      },
    ],
  })
  expect(JSON.parse(surveyBytes(survey, 5))).toEqual(shown)
})

test('an empty survey needs only a title', () => {
  const survey = surveyFromJson({ title: 't' })
  expect(equals(SurveySchema, survey, create(SurveySchema, { title: 't', scene: 1, state: SurveyState.DRAFT }))).toBe(
    true,
  )
})

test.each([
  [0, ''],
  [1, '1970-01-01 08:00:01'],
  [253_402_271_998, '9999-12-31 23:59:58'],
  [253_402_271_999, '9999-12-31 23:59:59'],
  [253_402_300_799, '9999-12-31 23:59:59'], // the last representable second in UTC
])('endTime %i is shown as %j', (endTime, shown) => {
  expect(surveyToJson(surveyFromJson({ title: 't', endTime }), 0)).toMatchObject({ endTime, end_at: shown })
})

test.each([
  [{ title: 'a\ud800b' }, 'title: holds one half of a surrogate pair'],
  [
    { title: 't', pages: [{ questions: [{ type: 'text', goto: '\udc00' }] }] },
    'pages[0].questions[0].goto: holds one half of a surrogate pair',
  ],
])('%j is not valid Unicode and is refused with its place', (json, message) => {
  expect(() => surveyFromJson(json)).toThrow(message)
})

test.each([
  [null, /^survey: /],
  [{}, /^title: is missing$/],
  [{ title: 't', pages: [{ questions: [{}] }] }, /^pages\[0\]\.questions\[0\]\.type: is missing$/],
  [{ title: 't', state: 1 }, /^state: must be 0 \(draft\), 2 \(collecting\) or 3 \(paused\)$/],
  [{ title: 't', hash: 'x/z' }, /^hash: only letters/],
  [{ title: 't', scene: 2 }, /^scene: must be one of "1" "3" "4" "5" "6" "7" "8" "9"$/],
  [{ title: 't', scene: '01' }, /^scene: must be one of "1" /],
  [{ title: 't', scene: '0' }, /^scene: must be one of "1" /],
  [{ title: 't', pages: [{}, { index: '12345678901234567' }] }, /^pages\[1\]\.index: /],
  [
    { title: 't', pages: [{ questions: [{ type: 'text' }, { type: 'radio' }, { type: 'quiz' }] }] },
    /^pages\[0\]\.questions\[2\]\.type: /,
  ],
  [
    { title: 't', pages: [{ questions: [{ type: 'radio', options: [{ text: 1 }] }] }] },
    /^pages\[0\]\.questions\[0\]\.options\[0\]\.text: /,
  ],
])('%j is refused with the path of what is wrong', (json, message) => {
  expect(() => surveyFromJson(json)).toThrow(message)
})
