// Log lines on their way to stderr: many in one write, and none for which a full disk or a reader that hangs makes the service
// wait.
import { constants, fstatSync, openSync } from 'node:fs'
import { setTimeout } from 'node:timers/promises'
import { pino } from 'pino'
import { errorCode } from '../error-code.js'

/** How long a line may wait for others before it is written, in ms. */
const WRITE_WITHIN_MS = 100
const WRITE_BYTES = 65_536
/** How much may wait for a reader of stderr, or for space on its disk; more is lost. */
const MOST_UNREAD_BYTES = 16 * 1024 * 1024
/** How long the end of the process waits, in ms, for a reader that reads nothing. */
const PATIENCE_MS = 2_000
const LOOK_EVERY_MS = 20
const MOST_FLUSHES = 3 // each leaves less than minLength, which is at most two more writes

type Destination = ReturnType<typeof pino.destination>

export interface Stderr {
  /** Takes bytes. */
  readonly destination: Destination
  /** Fulfils when all is written, at `byMs` of performance.now(), or sooner when the reader hangs. For the end of the process. */
  end(byMs: number): Promise<void>
}

/**
 * Lines of many requests are written together: a write for each would cost as much as a quarter of the request. What cannot be
 * written stays, and is tried again with the next line or in a moment.
 * `onLost` is told how much was lost.
 */
export function openStderr(onLost: (text: string) => void): Stderr {
  const stderr = fstatSync(process.stderr.fd)
  let hasFailed = false
  let hasEnded = false
  process.once('exit', () => {
    try {
      if (!hasFailed && !hasEnded) destination.flushSync() // on a full disk it would never return
    } catch {
      // the reader is slow, and this end is not an orderly one
    }
    destination.destroy() // else pino would flush it
  })
  const destination = pino.destination({
    dest: stderr.isFIFO() ? nonBlocking(process.stderr.fd) : process.stderr.fd,
    sync: false,
    contentMode: 'buffer', // given strings, it would measure all that wait with each line
    minLength: WRITE_BYTES / 2,
    maxWrite: WRITE_BYTES,
    maxLength: MOST_UNREAD_BYTES,
    periodicFlush: WRITE_WITHIN_MS,
    retryEAGAIN: () => false, // or it would keep the process from ending
  })
  destination.on('error', () => {
    hasFailed = true
  })
  destination.on('write', () => {
    hasFailed = false
  })
  tellOfLost(destination, onLost)
  return {
    destination,
    async end(byMs) {
      await Promise.race([flushed(destination, byMs), setTimeout(byMs - performance.now(), undefined, { ref: false })])
      hasEnded = true
    },
  }
}

/**
 * The pipe, opened once more. Node makes the descriptor it was given non-blocking, but for all who share it, and a command that
 * ends takes that back; a write that blocks would keep this process from ending. @returns `fd` if this may not be
 */
function nonBlocking(fd: number): number {
  try {
    return openSync(`/proc/self/fd/${fd}`, constants.O_WRONLY | constants.O_NONBLOCK)
  } catch {
    return fd
  }
}

async function flushed(destination: Destination, byMs: number): Promise<void> {
  let givesUpAtMs = 0
  const beginPatience = (bytes = 1) => {
    if (bytes > 0) givesUpAtMs = performance.now() + PATIENCE_MS
  }
  beginPatience()
  destination.on('write', beginPatience)
  for (let flushes = 0; flushes < MOST_FLUSHES && performance.now() < Math.min(givesUpAtMs, byMs); ) {
    const code = await flush(destination)
    if (code === 'EAGAIN') await setTimeout(LOOK_EVERY_MS)
    else if (code === 'ok' || code === 'EINVAL')
      flushes += 1 // a pipe is not flushed to a disk
    else return
  }
}

function flush(destination: Destination): Promise<string> {
  return new Promise((resolve) => destination.flush((error) => resolve(errorCode(error, 'ok'))))
}

function tellOfLost(destination: Destination, onLost: (text: string) => void): void {
  let lostBytes = 0
  destination.on('drop', (line: string) => {
    lostBytes += Buffer.byteLength(line)
  })
  destination.on('drain', () => {
    if (lostBytes === 0) return
    const text = `${lostBytes} bytes of the log were lost: stderr was not read, or could not be written`
    lostBytes = 0
    onLost(text)
  })
}
