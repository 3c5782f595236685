// Signals and the last resort of a process that serves.
import { EXIT } from './exit.js'

/**
 * Fulfils at the first SIGTERM or SIGINT, with its name. A second one ends the process at once, for a person who does
 * not want to wait for what is in flight. SIGHUP counts only where it says that the terminal is gone: a supervisor sends it
 * for files to be read again, and a process that has none to read goes on.
 */
export function untilToldToStop(): Promise<NodeJS.Signals> {
  return new Promise((resolve) => {
    let isTold = false
    const onSignal = (signal: NodeJS.Signals) => {
      if (isTold) process.exit(EXIT.failure)
      isTold = true
      resolve(signal)
    }
    process.on('SIGTERM', onSignal)
    process.on('SIGINT', onSignal)
    const hasTerminal = process.stderr.isTTY
    process.on('SIGHUP', (signal) => hasTerminal && onSignal(signal))
  })
}
