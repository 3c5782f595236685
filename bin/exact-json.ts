// JSON read without loss: JSON.parse takes the last of two members of one name, and rounds numbers, without a word.

/** A member is given a second time, at this position of the text. */
export class DuplicateMember extends Error {
  constructor(
    member: string,
    readonly position: number,
  ) {
    super(`${member} is given twice`)
  }
}

/** Of JSON: strings, of which those before a colon are names; numbers; where objects and arrays begin and end. */
const TOKENS = /"(?:[^"\\]+|\\.)*"(\s*:)?|-?\d[-+.eE\d]*|[{}[\]]/g

/**
 * What `text` holds. A number that JavaScript would round is Infinity, so that whoever reads it refuses it.
 * @throws SyntaxError for what is no JSON
 * @throws DuplicateMember
 */
export function parseExactly(text: string): unknown {
  const value: unknown = JSON.parse(text)
  if (JSON.stringify(value) === text) return value // nothing was lost: most lines of JSON Lines
  const open: Set<string>[] = [] // the names so far, in each object that has begun and not ended
  const exact = text.replace(TOKENS, (token, colon: string | undefined, at: number) => {
    const [first = ''] = token
    if ('{['.includes(first)) open.push(new Set())
    else if ('}]'.includes(first)) open.pop()
    else if (first !== '"') return isRounded(token) ? '1e999' : token
    else if (colon !== undefined) {
      const name = token.slice(0, -colon.length)
      const member: string = JSON.parse(name)
      if (open.at(-1)?.has(member)) throw new DuplicateMember(JSON.stringify(member), at)
      open.at(-1)?.add(member)
    }
    return token
  })
  return exact === text ? value : JSON.parse(exact)
}

function isRounded(number: string): boolean {
  return decimalOf(number) !== decimalOf(String(Number(number)))
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
