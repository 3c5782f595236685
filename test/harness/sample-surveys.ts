// Surveys in the JSON shape of the detail endpoint, as `survey import` takes them.
import { surveyFromJson } from '../../gateway/api/survey-from-json.js'
import { toDraft } from '../../services/survey/import-surveys.js'

export const QUESTION_TYPES = [
  'radio',
  'checkbox',
  'select',
  'text',
  'textarea',
  'blanks',
  'star',
  'nps',
  'sort',
  'matrix_radio',
  'matrix_checkbox',
  'matrix_star',
  'matrix_blank',
  'chained_selects',
  'upload',
  'description',
  'datetime',
  'signature',
  'address',
  'phone',
  'sheet',
] as const

const HAS_OPTIONS = new Set<string>([
  'radio',
  'checkbox',
  'select',
  'sort',
  'matrix_radio',
  'matrix_checkbox',
  'chained_selects',
])
const HAS_STARS = new Set<string>(['star', 'nps', 'matrix_star'])

/** One page with one question of every type. */
export function everyQuestionType(title = '满意度调查 & <feedback>') {
  const questions = QUESTION_TYPES.map((type, at) => ({
    id: `q-${at + 1}-abcd`,
    index: at + 1,
    type,
    sub_type: '',
    title: `Question ${type} 问题`,
    description: '',
    required: at % 2 === 0,
    goto: '',
    options: HAS_OPTIONS.has(type)
      ? [
          { id: 'o-1', text: '很好', exclusive: false, goto: '' },
          { id: 'o-2', text: 'None of these', exclusive: true, goto: 'q-3-abcd' },
        ]
      : [],
    ...(type.startsWith('matrix_') ? { subTitles: [{ id: 's-1', text: '服务' }] } : {}),
    ...(HAS_STARS.has(type) ? { starNum: 5, starBeginNum: 1 } : {}),
  }))
  return { ...smallSurvey(title), pages: [{ id: 'p-1-abcd', index: '1', questions }] }
}

export function smallSurvey(title = 'Team lunch', state = 2) {
  return {
    scene: '1',
    title,
    prefix: 'Welcome',
    suffix: 'Thank you',
    state,
    startTime: 0,
    endTime: 0,
    createTime: 1_700_000_000,
    updateTime: 1_700_000_100,
    pages: [
      {
        id: 'p-1-abcd',
        index: '1',
        questions: [
          {
            id: 'q-1-abcd',
            index: 1,
            type: 'radio',
            sub_type: '',
            title: 'Noodles?',
            description: '',
            required: true,
            goto: '',
            options: [{ id: 'o-1', text: 'Yes', exclusive: false, goto: '' }],
          },
        ],
      },
    ],
  }
}

export type SurveyJson = ReturnType<typeof smallSurvey>

/** The contract's bound, ImportSurveysRequest.surveys. */
export const MAX_SURVEY_BYTES = 4_000_000
const LONG = { text: 10_000, question: 10_050 } as const
/** Bytes of the key and the length of a text of 128 to 16,383 bytes. */
const TEXT_START = 3

/** A survey that is stored as `bytes` bytes, from 2,000 to a little above the limit. */
export function surveyOf(bytes: number): SurveyJson {
  const sizeOf = (json: SurveyJson) => toDraft(surveyFromJson(json), 0).document.length
  const small = smallSurvey()
  const pages = small.pages.map((page) => ({
    ...page,
    questions: Array.from({ length: Math.floor((bytes - 1000) / LONG.question) }, () => ({
      ...page.questions[0],
      title: 'x'.repeat(LONG.text),
    })),
  }))
  const survey = { ...small, suffix: '', pages } as SurveyJson
  return { ...survey, suffix: 'x'.repeat(bytes - sizeOf(survey) - TEXT_START) }
}
