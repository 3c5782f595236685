// Several gateways, one allowance: once a second each reports to the token service what it admitted and learns what all of
// them did. A request never waits for this; while that service cannot be reached, each gateway limits by what it knows.
import { timestampFromMs } from '@bufbuild/protobuf/wkt'
import type { Client } from '@connectrpc/connect'
import type { LimitService } from '../../gen/surveyauth/internal/v1/limit_service_pb.js'
import type { Count, WindowCounter } from './window-counter.js'

const SHARE_EVERY_MS = 1_000
/** Counts reported per kind and round; the rest go in the next round. */
const MAX_COUNTS = 5_000
/** Keeps a call within the 64 KiB that a service accepts, also with the longest keys. */
const COUNTS_PER_CALL = 200

type Limits = Pick<Client<typeof LimitService>, 'countRequests'>

/** Shares until the returned function is called; what was not reported by then is lost. */
export function startSharing(counters: ReadonlyMap<string, WindowCounter>, limits: Limits): () => void {
  let isBusy = false
  const timer = setInterval(() => {
    if (isBusy) return
    isBusy = true
    shareAll(counters, limits).finally(() => {
      isBusy = false
    })
  }, SHARE_EVERY_MS)
  timer.unref()
  return () => clearInterval(timer)
}

/** One round. Never rejects: the next round tries again. */
export async function shareAll(counters: ReadonlyMap<string, WindowCounter>, limits: Limits): Promise<void> {
  for (const [name, counter] of counters) {
    const taken = counter.takeUnreported(MAX_COUNTS)
    try {
      while (taken.length > 0) {
        await share(name, taken.slice(0, COUNTS_PER_CALL), limits)
        taken.splice(0, COUNTS_PER_CALL)
      }
    } catch {
      counter.giveBack(taken)
    }
  }
}

async function share(name: string, taken: readonly Count[], limits: Limits): Promise<void> {
  const grown = taken.map((count) => count.here - count.reported)
  // Before the call, not after: a request admitted meanwhile makes the count unreported again.
  for (const count of taken) count.reported = count.here
  try {
    const { totals } = await limits.countRequests({
      counts: taken.map((count, index) => ({
        key: `${name} ${count.key}`,
        windowEndTime: timestampFromMs(count.windowEndMs),
        requests: grown[index] ?? 0,
      })),
    })
    taken.forEach((count, index) => {
      count.elsewhere = Math.max(0, (totals[index] ?? 0) - count.reported)
    })
  } catch (error) {
    taken.forEach((count, index) => {
      count.reported -= grown[index] ?? 0
    })
    throw error
  }
}
