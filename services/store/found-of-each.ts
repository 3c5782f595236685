import { StoreUnavailable } from './store-unavailable.js'

/**
 * What each lookup found; undefined for one that failed, or has not ended after `patienceMs` if that is given. Whoever needs
 * that one asks again alone, so that not all lookups of the moment fail or wait with it.
 * @throws StoreUnavailable when all of them failed, the first with it
 */
export async function foundOfEach<Row>(
  lookups: readonly Promise<Row | undefined>[],
  patienceMs?: number,
): Promise<readonly (Row | undefined)[]> {
  const found = new Array<Row | undefined>(lookups.length).fill(undefined)
  const failures: unknown[] = []
  const ended = lookups.map((lookup, at) =>
    lookup.then(
      (row) => {
        found[at] = row
      },
      (error) => {
        failures.push(error)
      },
    ),
  )
  await within(patienceMs, Promise.all(ended))
  if (failures.length === lookups.length && failures[0] instanceof StoreUnavailable) throw failures[0]
  return [...found]
}

/** Fulfils when `work` does or the time is up. */
function within(ms: number | undefined, work: Promise<unknown>): Promise<unknown> {
  if (ms === undefined) return work
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms)
    void work.then(() => {
      clearTimeout(timer)
      resolve(undefined)
    })
  })
}
