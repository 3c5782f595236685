// Requests that come at about the same time are done together: a statement costs both ends many times what one more row in it
// does, and so does a commit.
import type { Until } from '../cause.js'
import { afterNextTurn, Queue } from '../queue.js'
import { StoreUnavailable } from '../store-unavailable.js'
import { PoolExhausted } from './errors.js'

/** Groups in flight at a time; calls that arrive meanwhile join the next group. More groups would each be smaller. */
const MAX_UNDER_WAY = 2
/** About a second of work. More are refused at once: they would wait beyond their deadlines. */
const MAX_WAITING = 5_000

/** An item, and until when it may wait to begin. */
export interface Waiting extends Until {
  /** Items with the same key are never in two groups at a time. No other item's if undefined. */
  readonly key: string | undefined
  reject(error: unknown): void
}

/** Items that wait for their turn. Those with the same key share a group, or wait for the one that has it. */
export class Together<Item extends Waiting> {
  readonly #maxItems: number
  readonly #run: (group: readonly Item[]) => Promise<void>
  readonly #waiting = new Queue<Item>((overdue) => overdue.forEach(refuse))
  #underWay = 0
  readonly #keysUnderWay = new Set<string | undefined>()
  #isScheduled = false

  /** `run` must neither reject nor take long because of a single item. */
  constructor(maxItems: number, run: (group: readonly Item[]) => Promise<void>) {
    this.#maxItems = maxItems
    this.#run = run
  }

  /** An item that has not begun when it is due is refused: once a caller has been told that it failed, it must not happen. */
  add(item: Item): void {
    if (this.#waiting.items.length >= MAX_WAITING) {
      refuse(item)
      return
    }
    this.#waiting.add(item)
    this.#schedule()
  }

  /** Runs a group after one more turn of the event loop, in which others may arrive. */
  #schedule(): void {
    if (this.#isScheduled || this.#underWay >= MAX_UNDER_WAY || this.#waiting.items.length === 0) return
    this.#isScheduled = true
    afterNextTurn(() => {
      this.#isScheduled = false
      const group = this.#take()
      if (group.length === 0) return
      this.#underWay += 1
      void this.#run(group).finally(() => {
        this.#underWay -= 1
        for (const { key } of group) this.#keysUnderWay.delete(key)
        this.#schedule()
      })
      this.#schedule()
    })
  }

  #take(): Item[] {
    this.#waiting.refuseOverdue()
    const taken: Item[] = []
    this.#waiting.items = this.#waiting.items.filter((item) => {
      if (taken.length >= this.#maxItems || this.#keysUnderWay.has(item.key)) return true
      taken.push(item)
      return false
    })
    for (const { key } of taken) if (key !== undefined) this.#keysUnderWay.add(key)
    return taken
  }
}

export function refuse(item: Waiting): void {
  item.reject(new StoreUnavailable(new PoolExhausted()))
}
