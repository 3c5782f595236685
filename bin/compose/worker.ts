// One worker of `serve --workers`: a gateway in a process of its own, which ends when its parent says so or is gone.
import cluster from 'node:cluster'
import { readConfig } from '../config.js'
import { CommandError, EXIT, report } from '../exit.js'
import { usedAddresses } from './addresses.js'
import type { Running } from './running.js'
import { start } from './start.js'
import type { FromWorker, StartFailure, ToWorker } from './worker-messages.js'

/** When the parent is gone, requests in flight get this long, in ms: then the port must be free for the next start. */
const ORPHAN_MS = 5_000
/** How long a slow reader of stderr is waited for, in ms; the parent kills those that are late. */
const LAST_LINES_MS = 5_000
/**
 * A parent that ends closes first its channel to this process, and within so many ms the listening socket. Until then this process
 * accepts connections: nobody else would.
 */
const PARENT_CLOSES_WITHIN_MS = 50

/** Returns when everything is answered. */
export async function runWorker(): Promise<void> {
  if (!cluster.isWorker) throw new CommandError('serve --workers starts these itself', EXIT.usage)
  // A terminal's signals reach every process of a group: the parent says what they mean.
  process.on('SIGINT', () => undefined)
  process.on('SIGHUP', () => undefined)
  cluster.worker?.on('error', () => undefined) // of the channel: the parent is gone, and `disconnect` follows
  const running = await startGateway()
  const told = untilToldToStop() // not before: until it serves, a worker ends with its parent
  process.on('message', (message: ToWorker) => {
    if (message.type === 'count') void tellCounts(running, message.question)
  })
  await tellCounts(running)
  await tell({ type: 'serving', url: running.url })
  await told
  await running.close()
  await tellCounts(running)
  await running.log.end(performance.now() + LAST_LINES_MS)
  if (process.connected) process.disconnect()
}

async function startGateway(): Promise<Running> {
  try {
    return await start('gateway', readConfig(process.env, usedAddresses.gateway), { isWorker: true })
  } catch (error) {
    const failure = failureOf(error)
    await tell({ type: 'failed', failure })
    return process.exit(failure.exitCode)
  }
}

function failureOf(error: unknown): StartFailure {
  if (error instanceof CommandError) return { text: error.message, exitCode: error.exitCode, hint: error.hint }
  return { text: 'a worker could not start', exitCode: report(error) }
}

/** SIGTERM is a request to leave, of which the parent is told first; a second one ends the process at once. */
function untilToldToStop(): Promise<void> {
  return new Promise((resolve) => {
    let isDismissed = false
    let isLeaving = false
    process.on('message', (message: ToWorker) => {
      if (message.type === 'dismiss') isDismissed = true
      if (message.type === 'stop') resolve()
    })
    process.on('SIGTERM', () => {
      if (isLeaving) process.exit(EXIT.failure)
      isLeaving = true
      void tell({ type: 'leaving' })
    })
    cluster.worker?.once('disconnect', () => {
      if (cluster.worker) cluster.worker.exitedAfterDisconnect = true // else node:cluster ends this process at once
      if (!isDismissed) setTimeout(() => process.exit(EXIT.failure), ORPHAN_MS).unref()
      setTimeout(resolve, PARENT_CLOSES_WITHIN_MS)
    })
  })
}

async function tellCounts(running: Running, question = 0): Promise<void> {
  const notReady = await running.notReady() // first: it may take a while, and what is counted meanwhile counts
  const snapshot = await running.snapshot()
  await tell({ type: 'counted', question, snapshot, notReady })
}

/** Fulfils when it is sent, or cannot be because the parent is gone. */
function tell(message: FromWorker): Promise<void> {
  return new Promise((resolve) => {
    if (process.send && process.connected) process.send(message, () => resolve())
    else resolve()
  })
}
