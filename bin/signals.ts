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

export interface HeldSignals {
  readonly isTold: () => boolean
  /** Has the process end, once it has nothing more to do, as a signal that has come would have ended it; nothing if none has. */
  readonly release: () => void
}

/** From now on the first SIGTERM or SIGINT ends nothing until `release`; one that comes a second later ends the process at once. */
export function holdSignals(): HeldSignals {
  let told: NodeJS.Signals | undefined
  const onSignal = (signal: NodeJS.Signals) => {
    told ??= signal
    setTimeout(letGo, PASSED_ON_WITHIN_MS).unref()
  }
  const letGo = () => {
    process.off('SIGTERM', onSignal)
    process.off('SIGINT', onSignal)
  }
  process.on('SIGTERM', onSignal)
  process.on('SIGINT', onSignal)
  return {
    isTold: () => told !== undefined,
    release: () => {
      letGo()
      const signal = told
      if (signal !== undefined) process.once('exit', () => process.kill(process.pid, signal)) // its output is then written
    },
  }
}
