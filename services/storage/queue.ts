import { isOver, type Until } from './cause.js'

/** Calls `then` when all that arrives in this turn of the event loop and the next has been read. */
export function afterNextTurn(then: () => void): void {
  setImmediate(() => setImmediate(then))
}

/** Items that wait for their turn, the oldest first. One that waits too long is refused, whether or not a turn comes. */
export class Queue<Item extends Until> {
  items: Item[] = []
  readonly #refuse: (overdue: readonly Item[]) => void
  #clock: NodeJS.Timeout | undefined

  constructor(refuse: (overdue: readonly Item[]) => void) {
    this.#refuse = refuse
  }

  add(item: Item): void {
    this.items.push(item)
    this.#watch()
  }

  refuseOverdue(): void {
    const overdue = new Set(this.items.filter(isOver))
    if (overdue.size === 0) return
    this.items = this.items.filter((item) => !overdue.has(item))
    this.#refuse([...overdue])
  }

  /** One timer, for the oldest item. A later one may be due sooner: its caller has been told by then, and it does not begin. */
  #watch(): void {
    const [first] = this.items
    if (this.#clock || !first) return
    const look = () => {
      this.#clock = undefined
      this.refuseOverdue()
      this.#watch()
    }
    this.#clock = setTimeout(look, Math.max(0, first.dueAt - performance.now())) // Node warns of a negative delay
    this.#clock.unref()
  }
}
