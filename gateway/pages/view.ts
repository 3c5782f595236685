// Turns a template and what it shows into an answer with the headers every page has. Eta escapes every value.
import { Eta } from 'eta'
import type { Answer } from '../http.js'
import type { FaceView } from './app-face.js'
import { PAGES_FOLDER } from './asset.js'
import type { DisplayTime, DisplayUser } from './display.js'
import { inLanguage, type Language } from './language.js'
import type { Look } from './look.js'
import { fill } from './texts.js'

/** What each template gets, besides the frame around it. */
export interface Views {
  'sign-in': {
    readonly appName: string | undefined
    readonly username: string
    readonly message: Message | undefined
    /** For username and password; undefined when nobody signs in so. */
    readonly form: FormView | undefined
    readonly elsewhere: readonly ButtonView[]
  }
  authorization: AccountView & {
    readonly appName: string
    readonly appInitial: string
    readonly face: FaceView
    readonly callbackHost: string
    /** What the app may do, and what that means. */
    readonly lines: readonly (readonly [act: string, detail: string])[]
    readonly mayNot: readonly string[]
    readonly duration: string
    /** Since when the app has been connected; undefined if it is not. */
    readonly connectedSince: DisplayTime | undefined
    /** Of one that is: whether it asks to read answers for the first time. */
    readonly areAnswersNew: boolean
    readonly decision: FormView
  }
  'connected-apps': AccountView & {
    /** Whose access has just been ended: its name, '' if that is unknown; undefined when nothing has happened. */
    readonly ended: string | undefined
    /** Those that match the search. */
    readonly apps: readonly ConnectedAppView[]
    readonly total: number
    readonly search: string
  }
  'your-account': AccountView & {
    readonly message: Message | undefined
    /** How this session began. */
    readonly way: string
    /** For password managers; empty if the user has none. */
    readonly username: string
    /** Changes the password; undefined for a user without one. */
    readonly password: FormView | undefined
    /** `unlink`: undefined for the last way to sign in. */
    readonly identities: readonly {
      readonly label: string
      readonly since: DisplayTime
      readonly unlink: FormView | undefined
    }[]
    readonly linkable: readonly ButtonView[]
    /** Sign in anew, for somebody who must before linking. */
    readonly signInAgain: readonly ButtonView[]
    /** What linking needs besides. */
    readonly proof: 'none' | 'password' | 'sign-in'
    readonly sessions: readonly SessionView[]
    readonly endOthers: FormView | undefined
  }
  landing: Record<string, never>
  error: {
    readonly heading: string
    readonly lead: string
    readonly developerNote: string | undefined
    readonly requestId: string
    readonly wayOn: { readonly href: string; readonly label: string } | undefined
  }
}

/** What the sign-in page says above its form. */
export interface Message {
  /** `alert`: what was typed is wrong; `notice`: what is nobody's mistake; `done`: what has just been done. */
  readonly kind: 'alert' | 'notice' | 'done'
  readonly text: string
}

export interface AccountView {
  readonly user: DisplayUser
  /** Signs this user out. */
  readonly leave: FormView
}

export interface ConnectedAppView {
  readonly name: string
  readonly initial: string
  readonly face: FaceView
  readonly appid: string
  readonly hosts: readonly string[]
  readonly firstUse: DisplayTime
  readonly lastUse: DisplayTime
  readonly readsAnswers: boolean
  /** undefined if it never has. */
  readonly answersRead: DisplayTime | undefined
  readonly expiry: DisplayTime
  readonly disconnect: readonly HiddenField[]
}

export interface SessionView {
  readonly browser: string
  readonly way: string
  readonly started: DisplayTime
  readonly lastSeen: DisplayTime
  /** undefined for the session of this browser. */
  readonly end: FormView | undefined
}

export interface FormView {
  readonly action: string
  readonly hidden: readonly HiddenField[]
}

/** A form that is one button. */
export interface ButtonView {
  readonly label: string
  readonly form: FormView
}

export interface HiddenField {
  readonly name: string
  readonly value: string
}

/** What surrounds every page. */
export interface Frame {
  readonly language: Language
  readonly title: string
  /** The page's address for GET, where the language switch leads. */
  readonly href: string
  /** Of a page whose form the switch sends, to keep what was typed: the form's id. */
  readonly switchForm?: string
  readonly isWide?: boolean
  /** The page's address must end in `#wj_redirect` (spec 4.1); its script warns the developer when it does not. */
  readonly expectsFragment?: boolean
}

export interface Rendered {
  readonly status: number
  readonly outcome: string
  readonly appid?: string
  readonly setCookies?: readonly string[]
  readonly headers?: Answer['headers']
}

const eta = new Eta({ views: `${PAGES_FOLDER}/templates`, cache: true, autoEscape: true })

export function renderPage<K extends keyof Views>(
  look: Look,
  template: K,
  frame: Frame,
  view: Views[K],
  rendered: Rendered,
): Answer {
  const t = look.texts[frame.language]
  const links = look.links[frame.language]
  const body = eta.render(`./${template}`, { ...view, t, frame, look, links, fill, withName, inLanguage })
  return {
    status: rendered.status,
    headers: [
      ...PAGE_HEADERS,
      ...['content-type', 'text/html; charset=utf-8'],
      ...['content-language', frame.language === 'zh' ? 'zh-CN' : 'en'],
      ...(rendered.headers ?? []),
      ...cookieHeaders(rendered.setCookies),
    ],
    body,
    outcome: rendered.outcome,
    ...(rendered.appid === undefined ? {} : { appid: rendered.appid }),
  }
}

/** 303: the browser follows with GET and never repeats the form's fields. */
export function redirectTo(location: string, rendered: Omit<Rendered, 'status'>): Answer {
  return {
    status: 303,
    headers: [...PAGE_HEADERS, 'location', location, ...cookieHeaders(rendered.setCookies)],
    body: '',
    outcome: rendered.outcome,
    ...(rendered.appid === undefined ? {} : { appid: rendered.appid }),
  }
}

/**
 * No inline script or style, nothing from elsewhere, no framing. `form-action` is left out on purpose: Chromium applies
 * it to the redirect after a form as well, and confirming must end at the app's callback. So is an opener policy: an app may
 * open the authorization page in a separate window, where its callback must find the opener again (docs/decisions.md 34).
 */
const PAGE_HEADERS = Object.entries({
  'cache-control': 'no-store',
  'content-security-policy':
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; base-uri 'none'; frame-ancestors 'none'",
  'cross-origin-resource-policy': 'same-origin',
  'permissions-policy': 'camera=(), geolocation=(), microphone=(), payment=(), usb=()',
  'x-frame-options': 'DENY',
}).flat()

function cookieHeaders(setCookies: readonly string[] = []): Answer['headers'] {
  return setCookies.flatMap((cookie) => ['set-cookie', cookie])
}

/** Splits a text at its `{name}`: the parts before and after the foreign text that the template isolates. */
function withName(text: string): { before: string; after: string } {
  const [, before = '', after = ''] = /^(.*)\{\w+\}(.*)$/s.exec(text) ?? [text, text]
  return { before, after }
}
