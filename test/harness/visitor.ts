// A person with a browser, reduced to what the pages may rely on: cookies, links, forms. No scripts.

import { type Form, type Html, readHtml } from './html.js'
import { type Outgoing, type Reply, send, sendAndLeave } from './http.js'

export interface Page extends Reply {
  /** Absolute address the page was fetched from. */
  readonly url: string
  readonly html: Html
}

export type Decision = 'confirm' | 'cancel'

/** As a browser asks for a page. */
const ACCEPT = 'text/html,application/xhtml+xml,*/*;q=0.8'

export class Visitor {
  readonly #origin: string
  readonly #language: string
  readonly cookies = new Map<string, string>()

  constructor(origin: string, language = 'en') {
    this.#origin = origin
    this.#language = language
  }

  /** One request with this visitor's cookies; redirects are not followed. `path` is sent byte for byte. */
  async request(path: string, outgoing: Outgoing = {}): Promise<Reply> {
    const reply = await send(this.#origin, path, this.#fromHere(outgoing))
    for (const line of reply.headers.get('set-cookie')?.split('\n') ?? []) this.#store(line)
    return reply
  }

  /** Opens a page of the service, following redirects within it. */
  async open(path: string, outgoing: Outgoing = {}): Promise<Page> {
    let target = path
    for (let hops = 0; hops < 5; hops += 1) {
      const reply = await this.request(target, hops === 0 ? outgoing : {})
      if (reply.status < 300 || reply.status > 399) return this.#page(target, reply)
      const location = new URL(reply.headers.get('location') ?? '', new URL(target, this.#origin))
      if (location.origin !== new URL(this.#origin).origin) throw new Error(`${target} redirects to ${location.origin}`)
      target = location.pathname + location.search
    }
    throw new Error(`${path} redirects in circles`)
  }

  /** Submits a form as a browser does, the named button pressed; redirects are not followed. */
  submit(page: Page, form: Form, sent: Readonly<Record<string, string>> = {}, extra: Outgoing = {}): Promise<Reply> {
    return this.request(targetOf(page, form), this.#submission(form, sent, extra))
  }

  /** Submits and closes the connection without waiting for the answer. */
  submitAndLeave(page: Page, form: Form, sent: Readonly<Record<string, string>> = {}): Promise<void> {
    return sendAndLeave(this.#origin, targetOf(page, form), this.#fromHere(this.#submission(form, sent)))
  }

  /** Submits and goes where the answer redirects to within the service, or shows the page it answers with. */
  async submitAndFollow(page: Page, form: Form, sent: Readonly<Record<string, string>> = {}): Promise<Page> {
    const reply = await this.submit(page, form, sent)
    const location = reply.headers.get('location')
    if (location === undefined) return this.#page(page.url, reply)
    const target = new URL(location, page.url)
    return this.open(target.pathname + target.search)
  }

  /** Opens a page that needs a signed-in user and signs in on the way if asked to. */
  async openSignedIn(path: string, user: { readonly username: string; readonly password: string }): Promise<Page> {
    const page = await this.open(path)
    const form = formWith(page, 'password')
    if (form === undefined) return page
    const next = await this.submitAndFollow(page, form, { username: user.username, password: user.password })
    if (formWith(next, 'password') !== undefined)
      throw new Error(`${user.username} could not sign in: ${next.html.text}`)
    return next
  }

  /** Presses the language switch: a link, or on the sign-in page a button that sends its form with what was typed. */
  async switchLanguage(page: Page, tag: 'zh-CN' | 'en', typed: Readonly<Record<string, string>> = {}): Promise<Page> {
    const { href, formaction } =
      page.html.tags.find(({ name, attributes }) => (name === 'a' || name === 'button') && attributes.lang === tag)
        ?.attributes ?? {}
    if (href !== undefined) {
      const { pathname, search } = new URL(href, page.url)
      return this.open(pathname + search, { headers: { referer: page.url } })
    }
    const form = formWith(page, 'password')
    if (formaction === undefined || form === undefined) throw new Error(`no language switch on: ${page.html.text}`)
    return this.submitAndFollow(page, { ...form, action: formaction }, typed)
  }

  /** Presses a button of the authorization form; the answer should redirect to the callback. */
  decide(page: Page, decision: Decision): Promise<Reply> {
    return this.submit(page, decisionForm(page), { decision })
  }

  #submission(form: Form, sent: Readonly<Record<string, string>>, extra: Outgoing = {}): Outgoing {
    if (form.method !== 'POST') throw new Error(`a form with method ${form.method}`)
    return {
      method: 'POST',
      body: new URLSearchParams({ ...form.fields, ...sent }).toString(),
      ...extra,
      headers: {
        'content-type': 'application/x-www-form-urlencoded',
        origin: new URL(this.#origin).origin,
        'sec-fetch-site': 'same-origin',
        'sec-fetch-mode': 'navigate',
        'sec-fetch-dest': 'document',
        ...extra.headers,
      },
    }
  }

  /** With what this visitor's browser adds to every request. */
  #fromHere(outgoing: Outgoing): Outgoing {
    const headers: Record<string, string> = { accept: ACCEPT, 'accept-language': this.#language, ...outgoing.headers }
    if (this.cookies.size > 0)
      headers.cookie ??= [...this.cookies].map(([name, value]) => `${name}=${value}`).join('; ')
    return { ...outgoing, headers }
  }

  #page(path: string, reply: Reply): Page {
    const url = new URL(path, this.#origin).href
    if (!reply.headers.get('content-type')?.startsWith('text/html'))
      throw new Error(`${path} is not a page: ${reply.text}`)
    return { ...reply, url, html: readHtml(reply.text) }
  }

  #store(line: string): void {
    const [pair = '', ...attributes] = line.split(';')
    const equals = pair.indexOf('=')
    const name = pair.slice(0, equals).trim()
    const value = pair.slice(equals + 1).trim()
    const isGone = attributes.some((attribute) => attribute.trim().toLowerCase() === 'max-age=0')
    if (isGone || value === '') this.cookies.delete(name)
    else this.cookies.set(name, value)
  }
}

function targetOf(page: Page, form: Form): string {
  const action = new URL(form.action, page.url)
  return action.pathname + action.search
}

/** The form of a page that has an input of this name. */
export function formWith(page: Page, input: string): Form | undefined {
  return page.html.forms.find((form) => input in form.fields)
}

/** The form as if it had been made for another authorization request: with these parameters in its address. */
export function formAskingFor(form: Form, changed: Readonly<Record<string, string>>): Form {
  const [path, query] = form.action.split('?')
  return {
    ...form,
    action: `${path}?${new URLSearchParams({ ...Object.fromEntries(new URLSearchParams(query)), ...changed })}`,
  }
}

export function decisionForm(page: Page): Form {
  const form = page.html.forms.find(({ buttons }) => buttons.some((button) => button.name === 'decision'))
  if (form === undefined) throw new Error(`no authorization form on: ${page.html.text}`)
  return form
}
