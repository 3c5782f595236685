// The end of a turn of the event loop: all that arrived in the turn has been read, and nothing more is read until everything
// that waited for the end has run as far as it can. A check made within an end thus comes after whatever arrived in its turn.

let isEnd = false
let next: Promise<void> | undefined

/** Fulfils when the end of this turn has begun. */
export function endOfTurn(): Promise<void> {
  next ??= new Promise((resolve) => {
    setImmediate(() => {
      next = undefined
      isEnd = true
      resolve()
      // Node drains the microtasks before it runs a nextTick callback that one of them scheduled; one scheduled here directly
      // would run before them. Only a callback that throws could keep it from running, and that ends the process.
      queueMicrotask(() => process.nextTick(over))
    })
  })
  return next
}

/** Calls `then` when all that arrives in this turn and the next has run as far as it can, and has been sent if it is ready. */
export function afterNextTurn(then: () => void): void {
  const nextEnd = isEnd ? endOfTurn() : endOfTurn().then(endOfTurn)
  void nextEnd.then(() => process.nextTick(() => process.nextTick(then)))
}

function over(): void {
  isEnd = false
}
