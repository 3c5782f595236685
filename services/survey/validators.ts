// Validators of answers about surveys: as services/token/validators.ts has them of answers about tokens.
// Layout: 16 bytes of what was found, the length of the token's validator in a byte, that, and what was asked for, in words.
import { hash } from 'node:crypto'
import { byteKey } from '../collections/bounded-map.js'
import { onceForEach } from '../collections/once-for-each.js'
import type { SurveyList, SurveyRow, SurveyStore } from './store/survey-store.js'

const FINGERPRINT_BYTES = 16
const TOKEN_START = FINGERPRINT_BYTES + 1
/** Of a token's validator: 500 go into what TokenService takes. */
const MAX_TOKEN_BYTES = 100
/** What is longer is no validator. */
const MAX_BYTES = 512
const SURVEY = 'survey '
const LIST = /^list (\d{1,13}) (\d{1,2}|100) (.+)$/s

type Found = SurveyRow | SurveyList

export interface Validator {
  /** Of what was found; see fingerprintOf. */
  readonly fingerprint: string
  /** Of the answer about the access token. */
  readonly token: Uint8Array
  /** Asks the store again. */
  readonly find: (store: SurveyStore) => Promise<Found | undefined>
}

const NONE = new Uint8Array()
/** Stands for nothing. */
export const NO_VALIDATOR: Validator = { fingerprint: '', token: NONE, find: async () => undefined }

/** Of the answer that `row` is, for a token whose answer has the validator `token`. */
export function validatorOfSurvey(token: Uint8Array, row: SurveyRow): Uint8Array {
  return validatorOf(token, row, `${SURVEY}${row.surveyId}`)
}

/** Of the answer that `found` is, for a token whose answer has the validator `token`. */
export function validatorOfList(
  token: Uint8Array,
  ownerUserId: string,
  { offset, limit }: { readonly offset: number; readonly limit: number },
  found: SurveyList,
): Uint8Array {
  return validatorOf(token, found, `list ${offset} ${limit} ${ownerUserId}`)
}

function validatorOf(token: Uint8Array, found: Found, asked: string): Uint8Array {
  if (token.length > MAX_TOKEN_BYTES) return NONE // of a later version: the answer is not kept
  return Buffer.concat([
    Buffer.from(fingerprintOf(found), 'latin1'),
    Buffer.of(token.length),
    token,
    Buffer.from(asked),
  ])
}

/** NO_VALIDATOR of bytes that are none. */
export function readValidator(bytes: Uint8Array): Validator {
  const tokenBytes = bytes[FINGERPRINT_BYTES] ?? 0
  if (tokenBytes > MAX_TOKEN_BYTES || bytes.length > MAX_BYTES) return NO_VALIDATOR
  const text = byteKey(bytes)
  const tokenEnd = TOKEN_START + tokenBytes
  return {
    fingerprint: text.slice(0, FINGERPRINT_BYTES),
    token: bytes.subarray(TOKEN_START, tokenEnd),
    find: findOf(text, tokenEnd),
  }
}

function findOf(text: string, start: number): Validator['find'] {
  if (text.startsWith(SURVEY, start)) {
    const surveyId = Number(text.slice(start + SURVEY.length))
    if (Number.isSafeInteger(surveyId)) return (store) => store.findSurvey(surveyId)
  }
  const [, offset, limit, owner] = LIST.exec(text.slice(start)) ?? []
  if (offset && limit && owner) {
    const ownerUserId = Buffer.from(owner, 'latin1').toString()
    return (store) => store.listSurveys(ownerUserId, { offset: Number(offset), limit: Number(limit) })
  }
  return NO_VALIDATOR.find
}

/** 16 bytes, a character each, that differ when anything does which an answer says or depends on. */
export const fingerprintOf = onceForEach((found: Found): string => {
  const { document, ...rest } = { document: NONE, ...found }
  const bytes = Buffer.concat([Buffer.from(JSON.stringify(rest)), document])
  return hash('sha256', bytes, 'binary').slice(0, FINGERPRINT_BYTES)
})
