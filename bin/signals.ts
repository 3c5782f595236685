// The signals that stop a process that serves.
import { EXIT } from './exit.js'

/** npm passes on at once what a terminal or a supervisor has also sent to us; a deliberate second signal is not so quick. */
const PASSED_ON_WITHIN_MS = 1_000

/**
 * Fulfils at the first SIGTERM or SIGINT, with its name. A second one ends the process at once, for a person who does
 * not want to wait for what is in flight; one passed on by npm, whose child we are by `exec` in package.json, does not count.
 * SIGHUP counts only where it means that the terminal is gone: a supervisor sends it to have files read again, and a process
 * that has none to read goes on.
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
