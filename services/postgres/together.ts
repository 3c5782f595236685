// What callers ask for at about the same time is done together: what a statement costs at both ends, and a commit, is many
// times what one more row of it does.
import { StoreUnavailable } from '../store/store-unavailable.js'

/** At work at a time; who comes meanwhile goes with the next. More would each have fewer. */
const MAX_UNDER_WAY = 2
/** About a second of work. More are refused at once: they would wait longer than they have time. */
const MAX_WAITING = 5_000

/** Items that wait for their turn. Those of one key are never in one group. */
export class Together<Item extends { readonly key: string }> {
  readonly #maxItems: number
  readonly #run: (group: readonly Item[]) => Promise<void>
  #waiting: Item[] = []
  #underWay = 0
  #isScheduled = false

  /** `run` must neither reject nor take long for one item's sake. */
  constructor(maxItems: number, run: (group: readonly Item[]) => Promise<void>) {
    this.#maxItems = maxItems
    this.#run = run
  }

  /** @throws StoreUnavailable when too many wait */
  add(item: Item): void {
    if (this.#waiting.length >= MAX_WAITING) {
      throw new StoreUnavailable(new Error('too many callers wait for a database connection'))
    }
    this.#waiting.push(item)
    this.#schedule()
  }

  /** At the end of the turn of the event loop, in which others come too. */
  #schedule(): void {
    if (this.#isScheduled || this.#underWay >= MAX_UNDER_WAY || this.#waiting.length === 0) return
    this.#isScheduled = true
    setImmediate(() => {
      this.#isScheduled = false
      this.#underWay += 1
      void this.#run(this.#take()).finally(() => {
        this.#underWay -= 1
        this.#schedule()
      })
      this.#schedule()
    })
  }

  #take(): Item[] {
    const taken = new Map<string, Item>()
    this.#waiting = this.#waiting.filter((item) => {
      if (taken.size >= this.#maxItems || taken.has(item.key)) return true
      taken.set(item.key, item)
      return false
    })
    return [...taken.values()]
  }
}
