// The page for everything that went wrong. Never shows what the request carried.
import type { Answer } from '../http.js'
import { displayWait } from './display.js'
import { type Language, SWITCH_PATH } from './language.js'
import type { Look } from './look.js'
import { fill } from './texts.js'
import { renderPage } from './view.js'

export interface ErrorPageInput {
  readonly status: number
  /** For log and metrics: an `error.type` or a page's name. */
  readonly outcome: string
  readonly requestId: string
  readonly language: Language
  /** What happened and what to do, in the page's language; by default what the status says. */
  readonly heading?: string
  readonly message?: string
  /** What the developer of the third-party app must change. */
  readonly developerNote?: string
  /** Where to go from here; by default the connected-apps page. `again`: the same address with its query; null: nowhere. */
  readonly wayOn?: { readonly href: string; readonly label: string } | 'again' | null | undefined
  /** When to try again, for a status that says to. */
  readonly retryAfterSeconds?: number | undefined
  readonly headers?: Answer['headers']
  readonly setCookies?: readonly string[]
}

export function errorPage(look: Look, input: ErrorPageInput): Answer {
  const { errors } = look.texts[input.language]
  const [heading, lead] = textOf(look, input)
  const title = input.heading ?? heading ?? ''
  const { wayOn = { href: '/connect/apps', label: errors.home } } = input
  return renderPage(
    look,
    'error',
    { language: input.language, title, href: SWITCH_PATH },
    {
      heading: title,
      lead: input.message ?? lead ?? '',
      developerNote: input.developerNote,
      requestId: input.requestId,
      wayOn: (wayOn === 'again' ? { href: '', label: errors.tryAgain } : wayOn) ?? undefined,
    },
    {
      status: input.status,
      outcome: input.outcome,
      ...(input.headers ? { headers: input.headers } : {}),
      ...(input.setCookies ? { setCookies: input.setCookies } : {}),
    },
  )
}

/** What the status alone says. */
function textOf(look: Look, { status, language, retryAfterSeconds }: ErrorPageInput): readonly string[] {
  const { errors, link } = look.texts[language]
  switch (status) {
    case 404:
      return errors.notFound
    case 405:
      return errors.methodNotAllowed
    case 413:
      return errors.formTooLarge
    case 414:
      return [link.tooLong, link.lead]
    case 429: {
      const [heading = '', lead = ''] = errors.tooMany
      if (retryAfterSeconds === undefined) return [heading, lead]
      return [heading, fill(errors.tooManyWait, { wait: displayWait(retryAfterSeconds, language) })]
    }
    case 431:
      return errors.headersTooLarge
    case 503:
      return errors.unavailable
    default:
      return status < 500 ? errors.badRequest : errors.unexpected
  }
}
