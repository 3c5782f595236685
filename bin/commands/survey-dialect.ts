// Surveys as other systems of this dialect, and its older versions, write them: brought into the JSON of the detail endpoint,
// and what had to be changed is told. What cannot be is left to surveyFromJson, which says what is wrong with it.
import { shanghaiTime } from '../../gateway/api/survey-to-json.js'

/** Told of each change: where, without positions, and what it is. */
export type Tell = (path: string, change: string) => void

type Members = Readonly<Record<string, unknown>>

interface Kind {
  /** Returns the value itself where nothing has to be changed; undefined for what stands for nothing. */
  readonly read: (value: unknown) => unknown
  readonly change: string
}

interface Holder {
  /** Members with a field of their own, of which null is none. */
  readonly own: Readonly<Record<string, Kind>>
  /** Other members of the published record; all that are in neither table are kept too. */
  readonly published: Readonly<Record<string, Kind>>
  readonly lists?: Readonly<Record<string, Holder>>
}

const FLAGS = new Map<unknown, boolean | undefined>([
  [0, false],
  [1, true],
  ['0', false],
  ['1', true],
  ['false', false],
  ['true', true],
  ['', undefined],
])
const OLDER_TYPES = new Map<unknown, string>([['text_multiple', 'blanks']])
const OLDER_SCENES = new Map<unknown, string>([
  ['0', '1'],
  ['2', '3'],
])

const asIs: Kind = { read: (value) => value, change: '' }
const number: Kind = {
  read: (value) => {
    if (value === '') return undefined
    const isNumber = typeof value === 'string' && /^-?\d+$/.test(value) && Number.isSafeInteger(Number(value))
    return isNumber ? Number(value) : value
  },
  change: 'text read as a number',
}
const text: Kind = {
  read: (value) => (Number.isFinite(value) ? String(value) : value),
  change: 'a number read as text',
}
const boolean: Kind = {
  read: (value) => (FLAGS.has(value) ? FLAGS.get(value) : value),
  change: '0 or 1 read as true or false',
}
const type: Kind = { read: (value) => OLDER_TYPES.get(value) ?? value, change: 'text_multiple read as blanks' }
const scene: Kind = {
  read: (value) => OLDER_SCENES.get(String(value)) ?? value,
  change: '0 read as 1, or 2 as 3',
}
const variant: Kind = { read: (value) => (value === 0 ? undefined : text.read(value)), change: text.change }
/** PHP writes an empty object as an empty array. */
const goto: Kind = {
  read: (value) => (Array.isArray(value) && value.length === 0 ? undefined : text.read(value)),
  change: text.change,
}

const OPTION: Holder = {
  own: { id: text, text, exclusive: boolean, goto },
  published: { display: asIs, noRandom: boolean },
}
const SUB_TITLE: Holder = { own: { id: text, text }, published: {} }
const QUESTION: Holder = {
  own: {
    id: text,
    index: number,
    type,
    sub_type: variant,
    title: text,
    description: text,
    required: boolean,
    goto,
    starNum: number,
    starBeginNum: number,
  },
  published: {
    real_index: number,
    hidden: boolean,
    random: boolean,
    prefill: boolean,
    blank_setting: asIs,
    refer: asIs,
    assess: asIs,
    maxlength: asIs, // a number, text, or empty text for none, by the age of the survey; so are the three below
    maxRow: asIs,
    rows: asIs,
    cols: asIs,
    validate: text,
    starShow: text,
    starShowCustomStart: text,
    starShowCustomEnd: text,
    starType: asIs,
    revertSort: asIs,
    starOptions: asIs,
    isOther: boolean,
    otherStr: text,
    levels: asIs,
    groups: asIs,
    file_type_limit: asIs,
    file_size_limit: number,
  },
  lists: { options: OPTION, subTitles: SUB_TITLE },
}
const PAGE: Holder = { own: { id: text, index: text }, published: {}, lists: { questions: QUESTION } }
const SURVEY: Holder = {
  own: {
    id: number,
    hash: text,
    scene,
    title: text,
    prefix: text,
    suffix: text,
    state: number,
    page_count: asIs,
    topic_count: asIs,
    startTime: number,
    endTime: number,
    started_at: asIs,
    end_at: asIs,
    createTime: number,
    updateTime: number,
    creator_user_id: asIs,
  },
  published: {
    template_id: number,
    settings: asIs,
    prev: boolean,
    titleIndex: boolean,
    login_check: boolean,
    answer_count: number,
    whitelist_enable: boolean,
    redirect_url: text,
    webhook_url: text,
    is_allow_update_answer: boolean,
    is_enabled_location: boolean,
  },
  lists: { pages: PAGE },
}

/**
 * The survey in the JSON of the detail endpoint. `unknown` is told of the members that no table has.
 * @throws Error for a time that cannot be read.
 */
export function surveyAsWeWriteIt(given: unknown, changed: Tell, unknown: (path: string) => void): unknown {
  const read = membersOf(given, SURVEY, '', { changed, unknown })
  return isObject(read) ? withTimes(read, changed) : read
}

interface Told {
  readonly changed: Tell
  readonly unknown: (path: string) => void
}

function membersOf(given: unknown, holder: Holder, path: string, told: Told): unknown {
  if (!isObject(given)) return given
  const members = Object.entries(given).flatMap(([name, value]) => {
    const read = memberOf(value, name, holder, path === '' ? name : `${path}.${name}`, told)
    return read === undefined ? [] : [[name, read] as const]
  })
  return Object.fromEntries(members)
}

function memberOf(value: unknown, name: string, { own, published, lists }: Holder, path: string, told: Told): unknown {
  const list = lists && entryOf(lists, name)
  const kind = entryOf(own, name)
  if ((list ?? kind) && value === null) {
    told.changed(path, 'null read as none')
    return undefined
  }
  if (list) return Array.isArray(value) ? value.map((item) => membersOf(item, list, `${path}[]`, told)) : value
  if (kind) return readAs(kind, value, path, told)
  const other = entryOf(published, name)
  if (!other) told.unknown(path)
  if (isRounded(value)) {
    told.changed(path, 'dropped: a number in it has more digits than can be kept')
    return undefined
  }
  return other ? (readAs(other, value, path, told) ?? value) : value
}

function readAs({ read, change }: Kind, value: unknown, path: string, { changed }: Told): unknown {
  const result = read(value)
  if (result === undefined) return undefined
  if (result !== value) changed(path, change)
  return result
}

/** The times of collecting are there twice: in seconds, and as text in Asia/Shanghai. Where only the text is, it is read. */
function withTimes(survey: Members, changed: Tell): Members {
  const read = { ...survey }
  for (const [seconds, shown] of [
    ['startTime', 'started_at'],
    ['endTime', 'end_at'],
  ] as const) {
    const at = survey[shown]
    if (at === undefined || at === '') continue
    if (!survey[seconds]) read[seconds] = secondsOf(at, shown)
    else if (typeof survey[seconds] === 'number' && shanghaiTime(survey[seconds]) !== at)
      changed(shown, `dropped: it is another time than ${seconds}`)
  }
  return read
}

function secondsOf(shown: unknown, name: string): number {
  const seconds = Date.parse(`${String(shown).replace(' ', 'T')}+08:00`) / 1000
  if (Number.isInteger(seconds) && shanghaiTime(seconds) === shown) return seconds
  throw new Error(`${name}: must be YYYY-MM-DD HH:MM:SS, a time in Asia/Shanghai`)
}

/** True where parseExactly has found a number that JavaScript would round. */
function isRounded(value: unknown, depth = 0): boolean {
  if (typeof value === 'number') return !Number.isFinite(value)
  if (typeof value !== 'object' || value === null || depth > MAX_DEPTH) return false
  return Object.values(value).some((held) => isRounded(held, depth + 1))
}

const MAX_DEPTH = 20 // what is deeper is refused by the rules of Survey.extra

export function isObject(value: unknown): value is Members {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function entryOf<T>(table: Readonly<Record<string, T>>, name: string): T | undefined {
  return Object.hasOwn(table, name) ? table[name] : undefined
}
