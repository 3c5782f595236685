// JSON read without loss: JSON.parse takes the last of two members of one name, and rounds numbers, without a word.

export type JsonPath = readonly (string | number)[]

/** A member is given a second time. */
export class DuplicateMember extends Error {
  constructor(
    /** Of the object that has it. */
    readonly path: JsonPath,
    readonly member: string,
  ) {
    super(`${JSON.stringify(member)} is given twice`)
  }
}

/**
 * What `text` holds. A number that JavaScript would round is NaN, so that whoever reads it refuses it.
 * @throws SyntaxError for what is no JSON
 * @throws DuplicateMember
 */
export function parseExactly(text: string): unknown {
  const holder: Record<PropertyKey, unknown> = { '': JSON.parse(text) }
  for (const path of roundedNumbers(text)) {
    const steps = ['', ...path]
    const last = steps.pop() as string | number
    const parent = steps.reduce((value, step) => value[step] as Record<PropertyKey, unknown>, holder)
    parent[last] = Number.NaN
  }
  return holder['']
}

/** Where the scan is: in an object at the member `step`, or in an array at the index `step`. */
interface Level {
  readonly members: Set<string> | undefined
  step: string | number
  isName: boolean
}

/** The paths of numbers that would be rounded in `text`, which is JSON. @throws DuplicateMember */
function* roundedNumbers(text: string): Generator<JsonPath> {
  const levels: Level[] = []
  const path = (depth: number) => levels.slice(0, depth).map(({ step }) => step)
  for (let at = 0; at < text.length; at += 1) {
    const character = text.charAt(at)
    const level = levels.at(-1)
    if (character === '{') levels.push({ members: new Set(), step: '', isName: true })
    else if (character === '[') levels.push({ members: undefined, step: 0, isName: false })
    else if (character === '}' || character === ']') levels.pop()
    else if (character === ',' && level) {
      if (typeof level.step === 'number') level.step += 1
      else level.isName = true
    } else if (character === '"') {
      const end = endOfString(text, at)
      if (level?.members && level.isName) {
        level.step = JSON.parse(text.slice(at, end)) as string
        level.isName = false
        if (level.members.has(level.step)) throw new DuplicateMember(path(levels.length - 1), level.step)
        level.members.add(level.step)
      }
      at = end - 1
    } else if (STARTS_NUMBER.test(character)) {
      const number = numberAt(text, at)
      if (decimalOf(number) !== decimalOf(String(Number(number)))) yield path(levels.length)
      at += number.length - 1
    }
  }
}

const STARTS_NUMBER = /[-0-9]/

function numberAt(text: string, at: number): string {
  const number = /[-+.eE0-9]+/y
  number.lastIndex = at
  return number.exec(text)?.[0] ?? ''
}

/** The position after the quotation mark that ends the string. */
function endOfString(text: string, start: number): number {
  let at = start + 1
  while (text[at] !== '"') at += text[at] === '\\' ? 2 : 1
  return at + 1
}

/** The same text for the same number, however it is written: its digits and a power of ten. */
function decimalOf(number: string): string {
  const [, sign = '', whole = '', fraction = '', exponent = '0'] =
    /^(-?)(\d+)(?:\.(\d+))?(?:[eE]([-+]?\d+))?$/.exec(number) ?? []
  const digits = (whole + fraction).replace(/^0+/, '')
  const significant = digits.replace(/0+$/, '')
  if (significant === '') return whole === '' ? number : '0'
  return `${sign}${significant}e${Number(exponent) - fraction.length + digits.length - significant.length}`
}
