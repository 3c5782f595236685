// An OpenID Provider in a process of its own, for tests of whole sign-ins; and what a person does there.
import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { onTestFinished } from 'vitest'
import { freePort } from '../harness/free-port.js'
import { readHtml } from '../harness/html.js'
import type { Reply } from '../harness/http.js'
import { Visitor } from '../harness/visitor.js'

const PROGRAM = fileURLToPath(new URL('./provider-process.js', import.meta.url))

/** What it says of a person, by subject, which is the name that the person types. */
interface Claims {
  readonly sub: string
  readonly name?: string
  readonly picture?: string
  readonly groups?: readonly string[]
}

export class TestProvider {
  readonly issuer: string
  readonly clientSecret: string
  readonly #port: number
  readonly #told: object[] = []
  #child: ChildProcess | undefined

  constructor(port: number) {
    this.#port = port
    this.issuer = `http://127.0.0.1:${port}`
    this.clientSecret = `client-secret-of-${port}`
  }

  /** What it has been told before, it knows again. */
  async start(): Promise<void> {
    const { PATH = '' } = process.env
    const env = { PATH, PORT: String(this.#port), CLIENT_SECRET: this.clientSecret }
    this.#child = fork(PROGRAM, { env, stdio: 'ignore' })
    await once(this.#child, 'message')
    for (const one of this.#told) await this.#send(one)
  }

  async stop(): Promise<void> {
    const child = this.#child
    this.#child = undefined
    if (!child) return
    child.kill('SIGKILL')
    await once(child, 'exit')
  }

  /** It takes connections and answers nothing, until it is resumed. */
  pause(): void {
    this.#child?.kill('SIGSTOP')
  }

  resume(): void {
    this.#child?.kill('SIGCONT')
  }

  knows(person: Claims): Promise<void> {
    return this.#tell({ person })
  }

  /** Registers the callback that a service has for it. */
  register(serviceUrl: string, id: string): Promise<void> {
    return this.#tell({ redirectUri: `${serviceUrl}/connect/oidc/${id}/callback` })
  }

  async #tell(one: object): Promise<void> {
    this.#told.push(one)
    await this.#send(one)
  }

  async #send(one: object): Promise<void> {
    if (!this.#child) throw new Error('the provider does not run')
    this.#child.send(one)
    await once(this.#child, 'message')
  }
}

/** For the caller to stop. */
export async function openProvider(): Promise<TestProvider> {
  const provider = new TestProvider(await freePort())
  await provider.start()
  return provider
}

/** For one test. */
export async function startProvider(): Promise<TestProvider> {
  const provider = await openProvider()
  onTestFinished(() => provider.stop())
  return provider
}

type Listed = Readonly<Record<string, { readonly issuer: string; readonly clientSecret: string } | undefined>>

/** OIDC_PROVIDERS_FILE with these providers by id, each with `more`; it is removed by `remove`. */
export function writeProvidersFile(listed: Listed, more: Readonly<Record<string, unknown>> = {}) {
  const folder = mkdtempSync(path.join(tmpdir(), 'survey-auth-providers-'))
  const providers = Object.entries(listed).flatMap(([id, of]) => {
    if (!of) return []
    writeFileSync(path.join(folder, id), of.clientSecret)
    const { issuer } = of
    return [{ id, label: `Provider ${id}`, issuer, client_id: 'surveys', client_secret_file: id, ...more }]
  })
  const file = path.join(folder, 'providers.json')
  writeFileSync(file, JSON.stringify({ providers }))
  return { file, remove: () => rmSync(folder, { recursive: true }) }
}

/** The same for one test. */
export function providersFile(listed: Listed, more: Readonly<Record<string, unknown>> = {}): string {
  const { file, remove } = writeProvidersFile(listed, more)
  onTestFinished(remove)
  return file
}

/** A browser at a provider. */
export function browserAt({ issuer }: { readonly issuer: string }): Visitor {
  return new Visitor(issuer)
}

/** What a person does at a provider, sent there with `address`: types `name`, or nothing if signed in. Answers where it leads. */
export async function signInThere(there: Visitor, address: string, name: string): Promise<URL> {
  return walk(there, address, (reply, at) => {
    const [form] = readHtml(reply.text).forms
    if (!form) throw new Error(`no form at ${at}: ${reply.text}`)
    const action = new URL(form.action, at).pathname
    const body = new URLSearchParams({ ...form.fields, login: name, password: 'any' }).toString()
    return there.request(action, {
      method: 'POST',
      body,
      headers: { 'content-type': 'application/x-www-form-urlencoded' },
    })
  })
}

/** The same for a person who gives up there. */
export async function giveUpThere(there: Visitor, address: string): Promise<URL> {
  return walk(there, address, (_, at) => there.request(`${at.pathname}/abort`))
}

/** Follows redirects; a page is answered by `onPage`. */
async function walk(there: Visitor, address: string, onPage: (page: Reply, at: URL) => Promise<Reply>): Promise<URL> {
  let at = new URL(address)
  const { origin } = at
  let reply = await there.request(at.pathname + at.search)
  for (let steps = 0; steps < 10; steps += 1) {
    const location = reply.headers.get('location')
    if (location === undefined || location === null) {
      reply = await onPage(reply, at)
      continue
    }
    at = new URL(location, at)
    if (at.origin !== origin) return at
    reply = await there.request(at.pathname + at.search)
  }
  throw new Error(`no end at ${at}`)
}
