// The page for everything that went wrong. Never shows what the request carried.
import type { Answer } from '../http.js'
import type { Language } from './language.js'
import { type Texts, texts } from './texts.js'
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
  /** Where to go from here; by default the connected-apps page, null for nowhere. */
  readonly wayOn?: { readonly href: string; readonly label: string } | null
  /** Whether the same address may answer soon: then it is the way on, with all that its query carries. */
  readonly mayTryAgain?: boolean
  readonly headers?: Readonly<Record<string, string>>
  readonly setCookies?: readonly string[]
}

export function errorPage(input: ErrorPageInput): Answer {
  const { errors } = texts[input.language]
  const [heading, lead] = errors[errorOf(input.status)]
  const title = input.heading ?? heading ?? ''
  const usual = input.mayTryAgain ? { href: '', label: errors.tryAgain } : { href: '/connect/apps', label: errors.home }
  const wayOn = input.wayOn === undefined ? usual : (input.wayOn ?? undefined)
  return renderPage(
    'error',
    { language: input.language, title },
    {
      heading: title,
      lead: input.message ?? lead ?? '',
      developerNote: input.developerNote,
      requestId: input.requestId,
      wayOn,
    },
    {
      status: input.status,
      outcome: input.outcome,
      ...(input.headers ? { headers: input.headers } : {}),
      ...(input.setCookies ? { setCookies: input.setCookies } : {}),
    },
  )
}

type ErrorName = Exclude<keyof Texts['errors'], 'tryAgain' | 'home'>

const byStatus: Readonly<Record<number, ErrorName>> = {
  404: 'notFound',
  405: 'methodNotAllowed',
  413: 'tooLarge',
  414: 'tooLarge',
  429: 'tooMany',
  431: 'tooLarge',
  503: 'unavailable',
}

function errorOf(status: number): ErrorName {
  return byStatus[status] ?? (status < 500 ? 'badRequest' : 'unexpected')
}
