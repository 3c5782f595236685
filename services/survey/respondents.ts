// Who answered, as an app sees it: a number of its own for each respondent. The key is in the survey database, so that nobody who knows
// a platform's ids, which may be guessed, can find out whose number it is, and apps cannot compare theirs.
import { createHmac } from 'node:crypto'
import type { SurveyStore } from './store/survey-store.js'

const KEY_BYTES = 32
/** Of a number that JSON carries exactly, 53 bits: those above the lowest 32. */
const HIGH_BITS = 2 ** 21

export interface Respondents {
  /** The numbers that this app sees, as text; empty for nobody. */
  asSeenBy(appid: string): Promise<(respondentId: string) => string>
}

export function createRespondents(
  store: Pick<SurveyStore, 'respondentKey'>,
  randomBytes: (size: number) => Uint8Array,
): Respondents {
  let key: Uint8Array | undefined
  return {
    async asSeenBy(appid) {
      key ??= await store.respondentKey(randomBytes(KEY_BYTES))
      const known = key
      return (respondentId) => (respondentId === '' ? '' : String(numberOf(known, appid, respondentId)))
    },
  }
}

function numberOf(key: Uint8Array, appid: string, respondentId: string): number {
  const mac = createHmac('sha256', key).update(`${appid} ${respondentId}`).digest()
  return (mac.readUInt32BE(0) % HIGH_BITS) * 2 ** 32 + mac.readUInt32BE(4) || 1 // 0 is nobody
}
