// What callers ask for at about the same time is done together: what a statement costs at both ends, and a commit, is many
// times what one more row of it does.
import { afterNextTurn } from '../../event-loop/end-of-turn.js'
import { isOver, type Until } from '../store/cause.js'
import { StoreUnavailable } from '../store/store-unavailable.js'
import { PoolExhausted } from './errors.js'

/** At work at a time; who comes meanwhile goes with the next. More would each have fewer. */
const MAX_UNDER_WAY = 2
/** About a second of work. More are refused at once: they would wait longer than they have time. */
const MAX_WAITING = 5_000

/** Until when it may wait to be begun. */
export interface Waiting extends Until {
  /** Nobody else's if undefined. */
  readonly key: string | undefined
  reject(error: unknown): void
}

/** Items that wait for their turn. Those of one key are never in one group. */
export class Together<Item extends Waiting> {
  readonly #maxItems: number
  readonly #run: (group: readonly Item[]) => Promise<void>
  #waiting: Item[] = []
  #underWay = 0
  #isScheduled = false
  #clock: NodeJS.Timeout | undefined

  /** `run` must neither reject nor take long for one item's sake. */
  constructor(maxItems: number, run: (group: readonly Item[]) => Promise<void>) {
    this.#maxItems = maxItems
    this.#run = run
  }

  /** What is not begun when it is due is refused: nothing happens of which the caller has been told that it did not. */
  add(item: Item): void {
    if (this.#waiting.length >= MAX_WAITING) {
      refuse(item)
      return
    }
    this.#waiting.push(item)
    this.#watch()
    this.#schedule()
  }

  /** After a turn of the event loop in which others come too. */
  #schedule(): void {
    if (this.#isScheduled || this.#underWay >= MAX_UNDER_WAY || this.#waiting.length === 0) return
    this.#isScheduled = true
    afterNextTurn(() => {
      this.#isScheduled = false
      const group = this.#take()
      if (group.length === 0) return
      this.#underWay += 1
      void this.#run(group).finally(() => {
        this.#underWay -= 1
        this.#schedule()
      })
      this.#schedule()
    })
  }

  #take(): Item[] {
    this.#refuseOverdue()
    const taken: Item[] = []
    const keys = new Set<string | undefined>()
    this.#waiting = this.#waiting.filter((item) => {
      if (taken.length >= this.#maxItems || (item.key !== undefined && keys.has(item.key))) return true
      keys.add(item.key)
      taken.push(item)
      return false
    })
    return taken
  }

  /** One timer, for who waits longest. Who comes later and may wait less has been told by then, and is not taken either. */
  #watch(): void {
    const [first] = this.#waiting
    if (this.#clock || !first) return
    const look = () => {
      this.#clock = undefined
      this.#refuseOverdue()
      this.#watch()
    }
    this.#clock = setTimeout(look, Math.max(0, first.dueAt - performance.now())) // of a time that is over Node warns
    this.#clock.unref()
  }

  #refuseOverdue(): void {
    const overdue = new Set(this.#waiting.filter(isOver))
    if (overdue.size === 0) return
    this.#waiting = this.#waiting.filter((item) => !overdue.has(item))
    for (const item of overdue) refuse(item)
  }
}

export function refuse(item: Waiting): void {
  item.reject(new StoreUnavailable(new PoolExhausted()))
}
