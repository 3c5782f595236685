// How much memory kept surveys and lists take: row, message, and the gateway's JSON.
import type { SurveyList, SurveyRow } from '../survey-store.js'

/** For everything that one store keeps. */
export const MAX_KEPT_BYTES = 128 * 1024 * 1024

const ENTRY_BYTES = 200
/** Measured: 2.4 times the document where texts are long, 20 times where a survey consists of short options. */
const DOCUMENT_FACTOR = 20
/** Of a list: each row as row, message and JSON, each time with its title. */
const ROW_BYTES = 600
const TITLE_FACTOR = 5

export function sizeOfSurvey({ document }: SurveyRow): number {
  return ENTRY_BYTES + document.length * DOCUMENT_FACTOR
}

export function sizeOfList({ rows }: SurveyList): number {
  return rows.reduce((sum, { title }) => sum + ROW_BYTES + title.length * TITLE_FACTOR, ENTRY_BYTES)
}
