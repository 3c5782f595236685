// Log lines on their way to stderr: many in one write, and none for which a full disk or a slow reader makes the service wait.
import { fstatSync } from 'node:fs'
import { pino } from 'pino'
import { errorCode } from '../error-code.js'

type SonicBoom = ReturnType<typeof pino.destination>

/** How long a line may wait for others before it is written, in ms. */
const WRITE_WITHIN_MS = 100
const WRITE_BYTES = 65_536
/** How much may wait for a reader of stderr, or for space on its disk; more is lost. */
const MOST_UNREAD_BYTES = 16 * 1024 * 1024
const MOST_BYTES_PER_UNIT = 3 // bytes of UTF-8 for a UTF-16 code unit
const WHOLE_WRITE_BYTES = 4_096 // PIPE_BUF: a pipe takes this much from one process before it takes anything from another

/**
 * Lines of many requests are written together: a write for each would cost as much as a quarter of the request. Everything is
 * written when the process ends, unless it is killed.
 */
export class StderrWriter {
  readonly #onLost: (text: string) => void
  readonly #writeBytes: number
  readonly #destination: SonicBoom
  readonly #timer: NodeJS.Timeout
  #waiting: Buffer
  #end = 0
  /** Why the last write failed. */
  #failure: string | undefined
  #lostBytes = 0
  #whyLost = ''

  /** `isShared`: with other processes, among whose lines ours stay whole. `onLost` is told what was lost, and why. */
  constructor(isShared: boolean, onLost: (text: string) => void) {
    const stderr = fstatSync(process.stderr.fd)
    const isSharedPipe = isShared && (stderr.isFIFO() || stderr.isSocket()) // journald gives a socket
    this.#onLost = onLost
    this.#writeBytes = isSharedPipe ? WHOLE_WRITE_BYTES : WRITE_BYTES
    this.#waiting = Buffer.allocUnsafe(this.#writeBytes)
    this.#destination = this.#open()
    this.#timer = setInterval(() => this.flush(), WRITE_WITHIN_MS).unref()
    process.once('exit', () => this.#finish())
  }

  /**
   * A line with its newline; it may wait for others. It is encoded at once: strings that wait are copied by the garbage
   * collector, and are out of the cache by the time they are joined.
   */
  write(line: string): void {
    const mostBytes = line.length * MOST_BYTES_PER_UNIT
    if (mostBytes > this.#writeBytes - this.#end) this.flush()
    if (mostBytes <= this.#writeBytes) this.#end += this.#waiting.write(line, this.#end)
    else this.#destination.write(Buffer.from(line) as never)
  }

  /** Writes what waits. */
  flush(): void {
    if (this.#end === 0) return
    const lines = this.#waiting.subarray(0, this.#end)
    this.#end = 0
    // As bytes: given strings, it scans all it holds every time. A small part may wait long, and must not retain the buffer.
    if (lines.length < this.#writeBytes / 2) this.#destination.write(Buffer.from(lines) as never)
    else {
      this.#destination.write(lines as never)
      this.#waiting = Buffer.allocUnsafe(this.#writeBytes)
    }
  }

  /**
   * If stderr is a file on a full disk, the service goes on, and what is unwritten waits for the next line, which tries again.
   * Unhandled, the error would end the process, or keep it from ending: the destination's own flush at the end retries for as
   * long as the disk is full.
   */
  #open(): SonicBoom {
    const destination = pino.destination({
      dest: process.stderr.fd,
      sync: false,
      contentMode: 'buffer',
      maxWrite: this.#writeBytes,
      maxLength: MOST_UNREAD_BYTES,
    })
    destination.on('error', (error) => {
      this.#failure = errorCode(error, 'unknown')
    })
    destination.on('write', () => {
      this.#failure = undefined
    })
    const flushSync = destination.flushSync.bind(destination)
    destination.flushSync = () => {
      if (this.#failure === undefined) flushSync()
    }
    destination.on('drop', ({ length }: Buffer) => {
      this.#lostBytes += length
      const failure = this.#failure
      this.#whyLost = failure === undefined ? 'nobody read stderr' : `stderr could not be written (${failure})`
    })
    destination.on('drain', () => this.#tellOfLost())
    return destination
  }

  #tellOfLost(): void {
    if (this.#lostBytes === 0) return
    const text = `${this.#lostBytes} bytes of the log were lost: ${this.#whyLost}`
    this.#lostBytes = 0
    this.#onLost(text)
  }

  #finish(): void {
    clearInterval(this.#timer)
    this.#destination.flushSync()
    if (this.#end === 0 || this.#failure !== undefined) return
    const ending = pino.destination({ dest: process.stderr.fd, sync: true }) // nothing asynchronous would end in time
    ending.on('error', () => undefined)
    ending.write(this.#waiting.toString('utf8', 0, this.#end))
  }
}
