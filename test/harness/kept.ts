import { getHeapSpaceStatistics, setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'

/**
 * What `work`, done twenty times, adds at most to what lives long, in MB, although nothing of it need live: what the quick
 * collector could not let go of. What is under way at the beginning is made to live long first, as it happens in time.
 */
export async function mostKeptMB(work: () => unknown): Promise<number> {
  setFlagsFromString('--expose-gc')
  const collectAll = runInNewContext('gc') as () => void
  const keptMB = () =>
    (getHeapSpaceStatistics().find((space) => space.space_name === 'old_space')?.space_used_size ?? 0) / 1e6
  await work()
  collectAll()
  const before = keptMB()
  let most = 0
  for (let n = 0; n < 20; n++) {
    await work()
    most = Math.max(most, keptMB() - before)
  }
  return most
}
