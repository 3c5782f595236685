// What a release promises (docs/operators/install.md), read from what the product itself is made of.
import { createHash } from 'node:crypto'
import type { Command, Option } from 'commander'
import { surveyCopy as survey, tokenCopy as token } from '../../bin/compose/copied-schemas.js'
import { EXIT } from '../../bin/exit.js'
import { createProgram } from '../../bin/main.js'
import { type Setting, settings } from '../../bin/settings.js'
import { problemKinds } from '../../gateway/errors.js'
import { routes } from '../../gateway/routes.js'
import type { Migration } from '../../services/storage/migration.js'
import { SURVEY_EVENT_KINDS } from '../../services/survey/store/survey-event.js'
import { AUDIT_KINDS } from '../../services/token/store/token-store.js'
import { exposed } from '../harness/exposed-metrics.js'
import { loadOpenApi } from '../harness/openapi.js'

/** Names, in any order, by what they belong to; or what must be the same. */
export type Promised = string | number | readonly string[] | { readonly [name: string]: Promised }

/** Whoever sends what sufficed goes on being served, and is told of no failure that was unknown: these lists do not grow. */
const NEVER_MORE: readonly string[] = ['needs', 'errors']

/** A line for everything that was promised and is not kept. */
export function broken(released: Promised, present: Promised | undefined, where: readonly string[] = []): string[] {
  const place = where.join(' › ')
  if (present === undefined) return [`${place} is gone`]
  if (isList(released)) {
    const now = isList(present) ? present : []
    const isLimit = NEVER_MORE.includes(where.at(-1) ?? '')
    const [wrong, what] = isLimit ? [without(now, released), 'is new'] : [without(released, now), 'is gone']
    return wrong.map((one) => `${place}: ${one} ${what}`)
  }
  if (typeof released !== 'object') return released === present ? [] : [`${place} was ${released} and is ${present}`]
  return Object.entries(released).flatMap(([name, one]) => broken(one, memberOf(present, name), [...where, name]))
}

const without = (all: readonly string[], some: readonly string[]) => all.filter((one) => !some.includes(one))

function isList(one: Promised): one is readonly string[] {
  return Array.isArray(one)
}

function memberOf(one: Promised, name: string): Promised | undefined {
  return typeof one === 'object' && !isList(one) ? one[name] : undefined
}

/** @param printed what each command prints with --json */
export async function promisedHere(printed: ReadonlyMap<string, readonly string[]>) {
  return {
    http: httpContract(),
    errorTypes: Object.fromEntries(
      openapiErrorTypes().map((type) => {
        const { code, status, action } = problemKinds[type as keyof typeof problemKinds]
        return [type, { code, status, action }]
      }),
    ),
    paths: routes.map(({ method, path }) => `${method} ${path}`).sort(),
    variables: variables(),
    exitCodes: EXIT,
    commands: Object.fromEntries(
      commandsOf(createProgram()).map(([words, command]) => [
        words,
        { ...usageOf(command), prints: [...(printed.get(words) ?? [])] },
      ]),
    ),
    metrics: await metrics(),
    auditEvents: [...AUDIT_KINDS, ...SURVEY_EVENT_KINDS],
    migrations: {
      'token in SQLite': digests(token.sqlite.migrations),
      'token in PostgreSQL': digests(token.postgres.migrations),
      'survey in SQLite': digests(survey.sqlite.migrations),
      'survey in PostgreSQL': digests(survey.postgres.migrations),
    },
  } satisfies Promised
}

function variables(): Record<string, string> {
  const rows = Object.values(settings).flatMap(({ variable, fallback, fallbackText, isSecret }: Setting<unknown>) => [
    [variable, fallbackText ?? (typeof fallback === 'string' ? fallback : '')] as const,
    ...(isSecret ? [[`${variable}_FILE`, ''] as const] : []),
  ])
  return Object.fromEntries(rows)
}

/** Those that do something, by their words. */
export function commandsOf(command: Command, words: readonly string[] = []): [string, Command][] {
  if (command.commands.length === 0) return [[words.join(' '), command]]
  return command.commands.flatMap((child) => commandsOf(child, [...words, child.name()]))
}

function usageOf({ registeredArguments, options }: Command) {
  const positions = registeredArguments.map(({ required, variadic, argChoices }, index) => {
    const name = `argument ${index + 1}${variadic ? ' and more' : ''}`
    return { required, takes: argChoices ? argChoices.map((choice) => `${name}: ${choice}`) : [name], name }
  })
  return {
    takes: [...positions.flatMap(({ takes }) => takes), ...options.flatMap(formsOf)],
    needs: [
      ...positions.flatMap(({ required, name }) => (required ? [name] : [])),
      ...options.flatMap(({ mandatory, long }) => (mandatory && long ? [long] : [])),
    ],
  }
}

function formsOf({ long, required, argChoices }: Option): string[] {
  if (argChoices) return argChoices.map((choice) => `${long} ${choice}`)
  return [`${long}${required ? ' VALUE' : ''}`]
}

async function metrics(): Promise<Record<string, string[]>> {
  const ours = [...(await exposed())].filter(([name]) => name.startsWith('survey_auth_'))
  return Object.fromEntries(ours.map(([name, labels]) => [name, [...labels].sort()]))
}

/** A released step is never edited: not even in its white space, which one would have to look at to tell. */
function digests(migrations: readonly Migration[]): Record<string, string> {
  const sha256 = (sql: string) => createHash('sha256').update(sql).digest('hex')
  const who = (usableFrom: number | undefined) => (usableFrom === undefined ? '' : `, usable from ${usableFrom}`)
  return Object.fromEntries(
    migrations.map(({ version, sql, usableFrom }) => [String(version), `${sha256(sql)}${who(usableFrom)}`]),
  )
}

const openapi = loadOpenApi()

type Node = Readonly<Record<string, unknown>>

function nodeAt(pointer: string): Node {
  return openapi.at(openapi.follow(pointer) ?? '') as Node
}

const escaped = (path: string) => path.replaceAll('/', '~1')

function openapiErrorTypes(): readonly string[] {
  return nodeAt('/components/schemas/Error/properties/type').enum as string[]
}

function httpContract() {
  const endpoints = openapi.paths.map((path) => {
    const operation = `/paths/${escaped(path)}/get`
    const { parameters = [], responses } = nodeAt(operation) as { parameters?: unknown[]; responses: Node }
    const known = parameters.map((_, index) => nodeAt(`${operation}/parameters/${index}`) as unknown as Parameter)
    const success = `${operation}/responses/200/content/${escaped('application/json')}/schema/oneOf/0`
    return [
      `GET ${path}`,
      {
        takes: known.flatMap(({ name, schema }) => valuesOf(schema).map((value) => `${name}${value}`)),
        needs: known.filter(({ required }) => required).map(({ name }) => name),
        answers: openapi.at(success) ? membersAt(success) : [],
        errors: [...new Set(Object.keys(responses).flatMap((status) => errorsAt(`${operation}/responses/${status}`)))],
      },
    ] as const
  })
  return { ...Object.fromEntries(endpoints), 'any failure': { answers: membersAt('/components/schemas/Failure') } }
}

interface Parameter {
  readonly name: string
  readonly required?: boolean
  readonly schema: { readonly const?: string; readonly enum?: readonly string[] }
}

function valuesOf({ const: only, enum: some = only === undefined ? undefined : [only] }: Parameter['schema']) {
  return some?.map((value) => `=${value}`) ?? ['']
}

/** The types of failures that an answer shows. */
function errorsAt(response: string): string[] {
  const examples = `${openapi.follow(response)}/content/${escaped('application/json')}/examples`
  return Object.keys((openapi.at(examples) ?? {}) as Node).flatMap((name) => {
    const { value } = nodeAt(`${examples}/${name}`) as { value: { error: { type: string } } }
    return value.error.type === '' ? [] : [value.error.type]
  })
}

/** Of the JSON that a schema describes; what is always there says so besides. */
function membersAt(pointer: string, path = ''): string[] {
  const at = openapi.follow(pointer) ?? ''
  const { type, properties, items, required = [] } = nodeAt(at) as Schema
  if (items) return membersAt(`${at}/items`, `${path}[]`)
  if (!properties) return [`${path} ${type ?? 'any'}`]
  return Object.keys(properties).flatMap((name) => {
    const inside = path === '' ? name : `${path}.${name}`
    const members = membersAt(`${at}/properties/${name}`, inside)
    return required.includes(name) ? [`${inside}, always`, ...members] : members
  })
}

interface Schema {
  readonly type?: string | readonly string[]
  readonly properties?: Node
  readonly items?: unknown
  readonly required?: readonly string[]
}
