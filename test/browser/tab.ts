// What scenarios.ts does with a browser, whichever engine it has and whatever protocol drives it.
import { setTimeout as sleep } from 'node:timers/promises'

/** The one tab of a browser with a profile of its own, which accepts any certificate. Elements are given by CSS selectors. */
export interface Tab {
  goto(url: string): Promise<unknown>
  reload(): Promise<unknown>
  back(): Promise<unknown>
  /** Neither waits for what follows from it. */
  click(selector: string): Promise<unknown>
  type(selector: string, text: string): Promise<unknown>
  /** The value of a JavaScript expression. */
  evaluate(expression: string): Promise<unknown>
  /** PNG in base64. */
  screenshot(): Promise<string>
  /** Deletes the cookies. */
  forget(): Promise<unknown>
  /** Ends the browser. */
  close(): Promise<void>
}

const PATIENCE_MS = 20_000

/** Waits until the tab shows a page whose text, as people see it, matches; with it come the address and what the fields hold. */
export async function untilShown(tab: Tab, text: RegExp): Promise<string> {
  let last = ''
  for (const endsAt = Date.now() + PATIENCE_MS; Date.now() < endsAt; await sleep(30)) {
    last = String(await tab.evaluate(SHOWN).catch((error) => error)) // a page that is being replaced has no answer
    if (text.test(last)) return last
  }
  throw new Error(`${text} is not shown, but:\n${last}`)
}

const SHOWN = `document.readyState === 'complete' ? [
  document.body.innerText,
  ...Array.from(document.querySelectorAll('input:not([type=hidden])'), ({ name, value }) => name + '=' + value),
  location.href,
].join('\\n') : ''`
