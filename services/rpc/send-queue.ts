// Calls that wait to be sent. Those added within two turns of the event loop go together.
import { afterNextTurn } from '../../event-loop/end-of-turn.js'

/** Beyond this many calls in a message, each costs hardly less. */
const WORTH_A_MESSAGE = 32
/** Answers that take longer are not waited for: a message costs little in comparison. */
const MAX_WAIT_MS = 5

export interface SendQueueOptions<Call> {
  /**
   * Whether calls wait for the answers to those before them: until all are there or enough calls for a message have gathered,
   * as long as answers take 5 ms at most. When answers take longer, calls are sent as they come, until one was in time again.
   */
  readonly waitsForAnswers: boolean
  /** While false, all calls wait until `flush`. */
  readonly isOpen: () => boolean
  /** False for a call that was given up, or is about to be. */
  readonly isWanted: (call: Call) => boolean
  readonly send: (calls: readonly Call[]) => void
}

export class SendQueue<Call> {
  readonly #options: SendQueueOptions<Call>
  #waiting: Call[] = []
  /** The unsettled calls of one message; once there are none, those of the next message are awaited. */
  #awaited = new Set<Call>()
  #awaitedSinceMs = 0
  /** Whether the last awaited call was settled in time. */
  #isQuick = true
  #isScheduled = false
  #timer: NodeJS.Timeout | undefined

  constructor(options: SendQueueOptions<Call>) {
    this.#options = options
  }

  add(call: Call): void {
    this.#waiting.push(call)
    this.#look()
  }

  /** The call was answered or given up. */
  settled(call: Call): void {
    if (!this.#awaited.delete(call) || this.#awaited.size > 0) return
    this.#isQuick = this.#waitedMs() <= MAX_WAIT_MS
    this.#look()
  }

  /** Sends all waiting calls. */
  flush(): void {
    clearTimeout(this.#timer)
    this.#timer = undefined
    if (!this.#options.isOpen()) return
    const calls = this.#waiting.filter(this.#options.isWanted)
    this.#waiting = []
    if (calls.length === 0) return
    if (this.#options.waitsForAnswers && this.#awaited.size === 0) {
      this.#awaited = new Set(calls)
      this.#awaitedSinceMs = performance.now()
    }
    this.#options.send(calls)
  }

  #look(): void {
    if (this.#isScheduled || this.#waiting.length === 0 || !this.#options.isOpen()) return
    if (this.#mayGo()) {
      this.#isScheduled = true
      afterNextTurn(() => {
        this.#isScheduled = false
        this.flush()
      })
    } else {
      this.#timer ??= setTimeout(() => this.flush(), Math.max(0, MAX_WAIT_MS - this.#waitedMs())) // the wait may be over by now
    }
  }

  #mayGo(): boolean {
    if (this.#awaited.size === 0 || !this.#isQuick || this.#waiting.length >= WORTH_A_MESSAGE) return true
    return this.#waitedMs() >= MAX_WAIT_MS
  }

  #waitedMs(): number {
    return performance.now() - this.#awaitedSinceMs
  }
}
