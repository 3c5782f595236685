// How a test of the kit says what is wrong.
import { type Violation, violationInWords } from '../../services/rpc/validation.js'

/** The provider is not as a test says; the message says how it is. */
export class Wrong extends Error {
  override readonly name = 'Wrong'
}

/** @throws Wrong */
export function check(holds: boolean, otherwise: string): asserts holds {
  if (!holds) throw new Wrong(otherwise)
}

/** @throws Wrong if the lists differ, naming the first difference. */
export function checkSame(found: readonly unknown[], expected: readonly unknown[], what: string): void {
  const at = Array.from({ length: Math.max(found.length, expected.length) }).findIndex(
    (_, n) => found[n] !== expected[n],
  )
  const shown = (list: readonly unknown[]) => (at < list.length ? String(list[at]) || 'empty' : 'nothing')
  check(at === -1, `${what}: ${shown(found)} at position ${at + 1}, not ${shown(expected)}`)
}

/** @throws Wrong if the rules of a record are violated, naming `what` it is and where. */
export function checkRules(violation: Violation | undefined, what: string): void {
  check(violation === undefined, `${what}: ${violation && violationInWords(violation)}`)
}
