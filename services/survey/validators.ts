// Validators of answers about surveys, like those of answers about tokens (services/token/validators.ts).
// Layout: a 16-byte fingerprint of what was found, one byte for the length of the token's validator, that validator, and the
// question in words.
import { hash } from 'node:crypto'
import { byteKey } from '../collections/bounded-map.js'
import { onceForEach } from '../collections/once-for-each.js'
import type { SurveyList, SurveyRow, SurveyStore } from './store/survey-store.js'

const FINGERPRINT_BYTES = 16
const TOKEN_START = FINGERPRINT_BYTES + 1
/** Of a token's validator: 500 of them fit into a request to TokenService. */
const MAX_TOKEN_BYTES = 100
/** Anything longer is no validator. */
const MAX_BYTES = 512
const SURVEY = 'survey '
const LIST = /^list (\d{1,13}) (\d{1,2}|100) (.+)$/s

type Found = SurveyRow | SurveyList

export interface Validator {
  /** Of the survey or list that was found; see fingerprintOf. */
  readonly fingerprint: string
  /** The validator of the answer about the access token. */
  readonly token: Uint8Array
  /** Looks up the survey or list again. */
  readonly find: (store: SurveyStore) => Promise<Found | undefined>
}

const NONE = new Uint8Array()
/** Matches nothing. */
export const NO_VALIDATOR: Validator = { fingerprint: '', token: NONE, find: async () => undefined }

/** The validator of the answer with `row`; `token` is the validator of the answer about the access token. */
export function validatorOfSurvey(token: Uint8Array, row: SurveyRow): Uint8Array {
  return validatorOf(token, row, `${SURVEY}${row.surveyId}`)
}

/** The validator of the answer with `found`; `token` is the validator of the answer about the access token. */
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

/** NO_VALIDATOR for bytes that are no validator. */
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

/** 16 bytes, one character each, that differ whenever something differs that an answer says or depends on. */
export const fingerprintOf = onceForEach((found: Found): string => {
  const { document, ...rest } = { document: NONE, ...found }
  const bytes = Buffer.concat([Buffer.from(JSON.stringify(rest)), document])
  return hash('sha256', bytes, 'binary').slice(0, FINGERPRINT_BYTES)
})
