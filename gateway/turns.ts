/** Lets `perTurn` callers proceed in each turn of the event loop, in order of arrival, so that a crowd cannot hold up a turn. */
export class Turns {
  readonly #perTurn: number
  readonly #waiting: (() => void)[] = []
  #ofThisTurn = 0

  constructor(perTurn: number) {
    this.#perTurn = perTurn
  }

  /** Fulfils when the caller may proceed; undefined when it may now. */
  next(): Promise<void> | undefined {
    if (this.#ofThisTurn === 0) setImmediate(() => this.#begin())
    if (this.#ofThisTurn < this.#perTurn) {
      this.#ofThisTurn += 1
      return undefined
    }
    return new Promise((resolve) => this.#waiting.push(resolve))
  }

  #begin(): void {
    const next = this.#waiting.splice(0, this.#perTurn)
    this.#ofThisTurn = next.length
    if (next.length > 0) setImmediate(() => this.#begin())
    for (const goOn of next) goOn()
  }
}
