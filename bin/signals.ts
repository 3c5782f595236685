// The signals that stop a process that serves, or a command that would leave a part of its work done without a word.
import { isatty } from 'node:tty'
import { EXIT } from './exit.js'

/** npm passes on at once what a terminal or a supervisor has also sent to us; a deliberate second signal is not so quick. */
const PASSED_ON_WITHIN_MS = 1_000

/**
 * Fulfils at the first SIGTERM or SIGINT, with its name. A second one ends the process at once, for a person who does
 * not want to wait for what is in flight; one passed on by npm, whose child we are by `exec` in package.json, does not count.
 * SIGHUP counts only where it means that the terminal is gone: a supervisor sends it to have files read again, and a process
 * that has none to read goes on. It is never a second signal: the kernel and the shell may each send one.
 */
export function untilToldToStop(hasTerminal = () => isatty(2)): Promise<NodeJS.Signals> {
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
    const hadTerminal = hasTerminal()
    process.on('SIGHUP', (signal) => hadTerminal && !hasTerminal() && resolve(signal))
  })
}
