// Tells in the log what a process lacks: when it has been absent for two looks in a row, and when it is back.
import type { Log } from '../telemetry/log.js'
import type { Absence } from './part.js'

/** What is absent for less is not told: it may be a restart, or a moment of overload. */
const LOOKS_BEFORE_TOLD = 2

/** To be called after each look, with all that it found absent. */
export function tellAbsences(log: Pick<Log, 'note' | 'warning'>): (absent: readonly Absence[]) => void {
  /** By what is absent: looks in a row that found it so. */
  const looks = new Map<string, number>()
  return (absent) => {
    const isBack = (what: string) => absent.every((one) => one.what !== what)
    const back = [...looks].filter(([what]) => isBack(what))
    for (const [what] of back) looks.delete(what)
    const told = back.filter(([, count]) => count >= LOOKS_BEFORE_TOLD).map(([what]) => what)
    if (told.length > 0) {
      log.note(absent.length === 0 ? 'everything is in order again' : `${told.join(', ')}: in order again`)
    }
    for (const { what } of absent) looks.set(what, (looks.get(what) ?? 0) + 1)
    const due = absent.filter(({ what }) => looks.get(what) === LOOKS_BEFORE_TOLD)
    if (due.length > 0) log.warning(`${areNeeded(due) ? 'not ready' : 'ready, but without'}: ${inWords(due)}`)
  }
}

/** Whether the process cannot be ready without them. */
export function areNeeded(absent: readonly Absence[]): boolean {
  return absent.some(({ isDispensable }) => !isDispensable)
}

function inWords(absent: readonly Absence[]): string {
  return absent.map(({ what, cause }) => `${what} (${cause})`).join('; ')
}
