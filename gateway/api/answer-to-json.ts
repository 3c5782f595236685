// An answer as JSON: the shape of the answers endpoints (decisions 51). answer-from-json.ts reads it.
import type {
  Answer,
  AnsweredGroup,
  AnsweredOption,
  AnsweredPage,
  AnsweredQuestion,
} from '../../gen/surveyauth/v1/answer_pb.js'
import { shanghaiTime, unixSeconds } from './survey-to-json.js'

/** `respondentId`: as its reader sees it. */
export function answerToJson(answer: Answer, respondentId: number | string): object {
  return {
    answer_id: Number(answer.answerId),
    survey_id: Number(answer.surveyId),
    openid: '', // decisions 52
    respondent_id: respondentId,
    started_at: shanghaiTime(unixSeconds(answer.startTime)),
    ended_at: shanghaiTime(unixSeconds(answer.endTime)),
    score: answer.score ?? null,
    answer: answer.pages.map(pageToJson),
  }
}

function pageToJson({ id, questions }: AnsweredPage): object {
  return { id, questions: questions.map(questionToJson) }
}

function questionToJson({ id, type, subType, text, options, groups, blanks }: AnsweredQuestion): object {
  return {
    id,
    type,
    sub_type: subType,
    text,
    options: options.map(optionToJson),
    groups: groups.map(groupToJson),
    blanks: blanks.map(({ id, value }) => ({ id, value })),
  }
}

function optionToJson({ id, text }: AnsweredOption): object {
  return { id, checked: 1, text }
}

function groupToJson({ id, text, options }: AnsweredGroup): object {
  return { id, text, options: options.map(optionToJson) }
}
