// Variables that were meant for this program and have no effect.
import { type Environment, VARIABLES } from './config.js'

/** Shorter names are close to too many others. */
const MIN_LENGTH = 8
const MAX_TYPOS = 2

/** A message for each name in an environment that is nearly that of a variable. */
export function misspelt(environment: Environment): string[] {
  const unknown = Object.keys(environment).filter((name) => name.length >= MIN_LENGTH && !VARIABLES.includes(name))
  return unknown.flatMap((written) => {
    const meant = meantBy(written.toUpperCase())
    return meant === undefined ? [] : [`${written} has no effect; is ${meant} meant?`]
  })
}

/** A variable with nearly this name, else one that begins with it; too many begin with a single word. */
function meantBy(name: string): string | undefined {
  const near = VARIABLES.find((known) => known.length >= MIN_LENGTH && typosBetween(name, known) <= MAX_TYPOS)
  return near ?? (name.includes('_') ? VARIABLES.find((known) => known.startsWith(`${name}_`)) : undefined)
}

/** Letters to insert, delete or change (Levenshtein). */
function typosBetween(a: string, b: string): number {
  let previous = Array.from({ length: b.length + 1 }, (_, column) => column)
  for (let row = 1; row <= a.length; row++) {
    const current = [row]
    for (let column = 1; column <= b.length; column++) {
      const changed = (previous[column - 1] ?? 0) + (a[row - 1] === b[column - 1] ? 0 : 1)
      current.push(Math.min(changed, (previous[column] ?? 0) + 1, (current[column - 1] ?? 0) + 1))
    }
    previous = current
  }
  return previous[b.length] ?? 0
}
