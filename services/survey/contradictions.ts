// What contradicts itself in a survey, each member of which may be right by itself: the rules of the proto cannot tell.
import type { Question, Survey } from '../../gen/surveyauth/v1/survey_pb.js'

const WITH_STARS: readonly string[] = ['star', 'matrix_star', 'nps']
const WITH_ROWS: readonly string[] = ['matrix_radio', 'matrix_checkbox', 'matrix_star', 'matrix_blank', 'sheet']

const TIMES = ['startTime', 'endTime', 'createTime', 'updateTime'] as const

/** A member that a question holds although its type does not have it. */
export interface Misplaced {
  /** For example `pages[0].questions[2]`. */
  readonly place: string
  readonly question: Question
  readonly member: 'starNum' | 'starBeginNum' | 'subTitles'
}

export function misplacedIn({ pages }: Survey): Misplaced[] {
  return pages.flatMap(({ questions }, page) =>
    questions.flatMap((question, at) =>
      misplacedMembers(question).map((member) => ({ place: `pages[${page}].questions[${at}]`, question, member })),
    ),
  )
}

function misplacedMembers({ type, starNum, starBeginNum, subTitles }: Question): Misplaced['member'][] {
  const hasStars = WITH_STARS.includes(type)
  return [
    ...(starNum === undefined || hasStars ? [] : ['starNum' as const]),
    ...(starBeginNum === undefined || hasStars ? [] : ['starBeginNum' as const]),
    ...(subTitles.length === 0 || WITH_ROWS.includes(type) ? [] : ['subTitles' as const]),
  ]
}

/** For a person, as `… is not a member of a question of type radio`. */
export function inWords({ place, question, member }: Misplaced): string {
  return `${place}.${member} is not a member of a question of type ${question.type}`
}

/** The first contradiction, for a person; undefined if there is none. */
export function contradictionIn(survey: Survey): string | undefined {
  const early = TIMES.find((name) => (survey[name]?.seconds ?? 0n) < 0n)
  if (early) return `${early} is before 1970`
  const { startTime, endTime } = survey
  if (startTime && endTime && endTime.seconds < startTime.seconds) return 'endTime is before startTime'
  return misplacedIn(survey).map(inWords)[0]
}
