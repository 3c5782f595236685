// The end of a turn of the event loop: all that came in it has been read, and until everything that waited for the end has
// gone on as far as it can, nothing more is read. What is looked at within an end is looked at after whatever came in its turn.

/** An end under way; another one is another number. */
let present: number | undefined
let ends = 0
let next: Promise<void> | undefined

/** The end that runs now; undefined while none does. */
export function presentEnd(): number | undefined {
  return present
}

/** Fulfils when the end of this turn has begun. */
export function endOfTurn(): Promise<void> {
  next ??= new Promise((resolve) => {
    setImmediate(() => {
      next = undefined
      ends += 1
      present = ends
      resolve()
      // Node runs what promises have scheduled until there is no more of it, and only then what one of them scheduled for the
      // next tick; what is scheduled for it here would run before them. A tick that throws could keep it from running, and
      // ends the process.
      queueMicrotask(() => process.nextTick(over))
    })
  })
  return next
}

/** Calls `then` when all that has come until now, in this turn or in its end, has gone on as far as it can. */
export function whenAllWentOn(then: () => void): void {
  if (present === undefined) setImmediate(then)
  else process.nextTick(then)
}

/** Calls `then` when all that comes in this turn and in the next one has gone on as far as it can, and is sent if it is ready. */
export function afterNextTurn(then: () => void): void {
  const nextEnd = present === undefined ? endOfTurn().then(endOfTurn) : endOfTurn()
  void nextEnd.then(() => process.nextTick(() => process.nextTick(then)))
}

function over(): void {
  present = undefined
}
