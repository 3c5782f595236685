import { afterEach, beforeEach, describe, test } from 'vitest'

/** One promise of a store interface. Runs against an empty store and throws when the promise is broken. */
export interface Check<Store> {
  readonly title: string
  readonly run: (store: Store) => Promise<void>
}

interface Closable {
  close(): Promise<void>
}

/** Runs every check against an adapter, each with its own empty store. */
export function describeConformance<Store extends Closable>(
  name: string,
  checks: readonly Check<Store>[],
  open: () => Promise<Store>,
): void {
  describe(name, () => {
    let store: Store
    beforeEach(async () => {
      store = await open()
    })
    afterEach(() => store.close())
    for (const { title, run } of checks) test(title, () => run(store))
  })
}

/** Titles of the checks a store fails, each with its own empty store. */
export async function failedChecks<Store extends Closable>(
  checks: readonly Check<Store>[],
  open: () => Promise<Store>,
): Promise<string[]> {
  const failed: string[] = []
  for (const { title, run } of checks) {
    const store = await open()
    await run(store).catch(() => failed.push(title))
    await store.close()
  }
  return failed
}
