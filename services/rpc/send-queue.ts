// Calls of one method on their way to be sent. Those of two turns of the event loop go together.
import { afterNextTurn } from '../../event-loop/end-of-turn.js'

/** Of more than so many in a message each costs hardly less. */
const WORTH_A_MESSAGE = 32
/** An answer that takes longer does so for another reason than the calls before it. */
const MAX_WAIT_MS = 5

export interface SendQueueOptions<Call> {
  /**
   * Whether calls wait for the answers to those before them: until all are there, until so many have come as are worth a
   * message, or for 5 ms, whichever comes first.
   */
  readonly waitsForAnswers: boolean
  /** While it is not, all wait, until `flush`. */
  readonly isOpen: () => boolean
  readonly send: (calls: readonly Call[]) => void
}

export class SendQueue<Call> {
  readonly #options: SendQueueOptions<Call>
  #waiting: Call[] = []
  /** Those that wait, and those that were sent and are not settled. */
  #unsettled = 0
  #isScheduled = false
  #timer: NodeJS.Timeout | undefined

  constructor(options: SendQueueOptions<Call>) {
    this.#options = options
  }

  add(call: Call): void {
    this.#waiting.push(call)
    this.#unsettled += 1
    this.#look()
  }

  /** One is answered or given up; one that still waits is sent for all that. */
  settled(): void {
    this.#unsettled -= 1
    this.#look()
  }

  /** Sends what waits. */
  flush(): void {
    clearTimeout(this.#timer)
    this.#timer = undefined
    if (this.#waiting.length === 0 || !this.#options.isOpen()) return
    const calls = this.#waiting
    this.#waiting = []
    this.#options.send(calls)
  }

  #look(): void {
    if (this.#waiting.length === 0 || this.#isScheduled) return
    if (this.#mayGo()) {
      this.#isScheduled = true
      afterNextTurn(() => {
        this.#isScheduled = false
        this.flush()
      })
    } else {
      this.#timer ??= setTimeout(() => this.flush(), MAX_WAIT_MS)
    }
  }

  #mayGo(): boolean {
    if (!this.#options.waitsForAnswers || this.#waiting.length >= WORTH_A_MESSAGE) return true
    return this.#unsettled <= this.#waiting.length
  }
}
