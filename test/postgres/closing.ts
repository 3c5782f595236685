import { onTestFinished } from 'vitest'

/** Closes a store when the test is over. */
export function closing<Store extends { close(): Promise<void> }>(store: Store): Store {
  onTestFinished(() => store.close())
  return store
}
