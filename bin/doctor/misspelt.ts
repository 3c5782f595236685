// Variables that were meant for this program and have no effect.

/** Shorter names are near to too many others. */
const MIN_LENGTH = 8
const MAX_TYPOS = 2

/** Names in the environment that are nearly one of `known`, each with that one. */
export function misspelt(
  environment: readonly string[],
  known: readonly string[],
): { readonly written: string; readonly meant: string }[] {
  const unknown = environment.filter((name) => name.length >= MIN_LENGTH && !known.includes(name))
  return unknown.flatMap((written) => {
    const meant = known.find(
      (name) => name.length >= MIN_LENGTH && typosBetween(written.toUpperCase(), name) <= MAX_TYPOS,
    )
    return meant === undefined ? [] : [{ written, meant }]
  })
}

/** Letters to put in, take out or change (Levenshtein). */
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
