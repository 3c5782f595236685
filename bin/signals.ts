// Signals and the last resort of a process that serves.
import { EXIT } from './exit.js'

/** npm passes on at once what a terminal or a supervisor has also sent to us; nobody who means a second one is so quick. */
const PASSED_ON_WITHIN_MS = 1_000

/**
 * Fulfils at the first SIGTERM or SIGINT, with its name. A second one ends the process at once, for a person who does
 * not want to wait for what is in flight; what npm passes on, whose child we are by `exec` in package.json, is none. SIGHUP
 * counts only where it says that the terminal is gone: a supervisor sends it for files to be read again, and a process that
 * has none to read goes on.
 */
export function untilToldToStop(): Promise<NodeJS.Signals> {
  return new Promise((resolve) => {
    const isChildOfNpm = process.env.npm_lifecycle_script?.startsWith('exec ') === true
    let toldAtMs: number | undefined
    const onSignal = (signal: NodeJS.Signals) => {
      const isPassedOn = isChildOfNpm && performance.now() - (toldAtMs ?? 0) < PASSED_ON_WITHIN_MS
      if (toldAtMs !== undefined && !isPassedOn) process.exit(EXIT.failure)
      toldAtMs ??= performance.now()
      resolve(signal)
    }
    process.on('SIGTERM', onSignal)
    process.on('SIGINT', onSignal)
    const hasTerminal = process.stderr.isTTY
    process.on('SIGHUP', (signal) => hasTerminal && onSignal(signal))
  })
}
