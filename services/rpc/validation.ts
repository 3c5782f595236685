// The rules of the proto files, compiled once per message into closures. They are protovalidate's and mean the same: a test
// compares the two. The library interprets its rules at every call, which cost more than everything else in a call.
import {
  type DescField,
  type DescMessage,
  getOption,
  hasOption,
  type JsonObject,
  type JsonValue,
  type Message,
  ScalarType,
} from '@bufbuild/protobuf'
import { StructSchema, type Timestamp, TimestampSchema } from '@bufbuild/protobuf/wkt'
import { type FieldRules, field as fieldRules, Ignore, type StringRules } from '../../gen/buf/validate/validate_pb.js'

/** One thing that is wrong with a message. */
export interface Violation {
  /** For example `pages[0].title`. */
  readonly field: string
  /** For example `at most 1000 characters`. */
  readonly description: string
}

export const violationInWords = ({ field, description }: Violation) => `${field}: ${description}`

/** What is wrong with a message; undefined if nothing is. */
export type Validate<T = unknown> = (message: T) => Violation | undefined

/** Checks one value; `path` is where it is in the request, for example `pages[0].title`. */
type Check = (value: never, path: string) => Violation | undefined

const compiled = new Map<DescMessage, Check>()

/**
 * Checks the rules of a message and of all it contains. In addition, no text may contain U+0000, which databases cannot store,
 * a time must be one that google.protobuf.Timestamp allows, and a Struct is bounded.
 * @throws Error for a rule that is not known here, so that none is left unenforced.
 */
export function compileRules(desc: DescMessage): Validate<Message> {
  const check = messageCheck(desc)
  return (message) => check(message as never, '')
}

/** In seconds since 1970: the years 1 to 9999. */
const TIMES = { from: -62_135_596_800n, to: 253_402_300_799n }

function timeCheck({ seconds, nanos }: Timestamp, path: string): Violation | undefined {
  const isTime = seconds >= TIMES.from && seconds <= TIMES.to && nanos >= 0 && nanos < 1e9
  return isTime ? undefined : { field: path, description: 'must be a time between the years 1 and 9999' }
}

const STRUCT = {
  members: 200,
  nameLength: 128,
  depth: 20, // up to three messages each, of the 100 that decoders read; nine levels of chained selects are 19
} as const

/** In a request, a Struct is the JSON object that it stands for. */
function structCheck(members: JsonObject, path: string): Violation | undefined {
  if (Object.keys(members).length > STRUCT.members)
    return { field: path, description: `at most ${STRUCT.members} members` }
  return jsonCheck(members, path, 1)
}

function jsonCheck(value: JsonValue, path: string, depth: number): Violation | undefined {
  const refused = (description: string) => ({ field: path, description })
  if (typeof value === 'string') return jsonTextCheck(value, path)
  if (typeof value === 'number' && !Number.isFinite(value)) return refused('has more digits than can be kept')
  if (typeof value !== 'object' || value === null) return undefined
  if (depth > STRUCT.depth) return refused(`nested more than ${STRUCT.depth} deep`)
  for (const [name, held] of Object.entries(value)) {
    const isName = !Array.isArray(value)
    if (isName && (name.length > STRUCT.nameLength || name === '__proto__'))
      return refused(`a name is longer than ${STRUCT.nameLength} characters, or __proto__`)
    const violation =
      (isName ? jsonTextCheck(name, path) : undefined) ??
      jsonCheck(held, isName ? `${path}.${name}` : `${path}[${name}]`, depth + 1)
    if (violation !== undefined) return violation
  }
  return undefined
}

function jsonTextCheck(text: string, path: string): Violation | undefined {
  if (!text.isWellFormed()) return { field: path, description: 'holds one half of a surrogate pair' }
  return text.includes('\0') ? { field: path, description: NO_NUL } : undefined
}

const NO_NUL = 'must not contain a NUL character'

function messageCheck(desc: DescMessage): Check {
  if (desc.typeName === TimestampSchema.typeName) return timeCheck
  if (desc.typeName === StructSchema.typeName) return structCheck
  const known = compiled.get(desc)
  if (known) return known
  // A message may contain itself, so its check is registered before it is complete.
  let checks: readonly Check[] = []
  const check: Check = (message, path) => {
    for (const one of checks) {
      const violation = one(message, path)
      if (violation !== undefined) return violation
    }
    return undefined
  }
  compiled.set(desc, check)
  checks = desc.fields.map(fieldCheck).filter((one) => one !== undefined)
  return check
}

function rulesOf(field: DescField): FieldRules | undefined {
  return hasOption(field, fieldRules) ? getOption(field, fieldRules) : undefined
}

/** All checks of one field of a message. */
function fieldCheck(field: DescField): Check | undefined {
  const rules = rulesOf(field)
  if (rules?.ignore === Ignore.ALWAYS) return undefined
  if (field.oneof && rules) throw new Error(`${field}: rules inside a oneof are not known here`)
  const value = valueCheck(field, rules)
  if (!value && !rules?.required) return undefined
  const name = field.localName
  const hasPresence = field.fieldKind !== 'list' && field.presence !== IMPLICIT
  const isRequired = rules?.required ?? false
  const skipsZero = hasPresence || rules?.ignore === Ignore.IF_ZERO_VALUE

  return (message, path) => {
    const here = path === '' ? field.name : `${path}.${field.name}`
    const held = message[name] as unknown
    if (isRequired && isZero(held)) return { field: here, description: 'required' }
    if (skipsZero && (hasPresence ? held === undefined : isZero(held))) return undefined
    return value?.(held as never, here)
  }
}

const IMPLICIT = 3 // FeatureSet.FieldPresence.IMPLICIT: the zero value cannot be told from an absent one

function isZero(value: unknown): boolean {
  if (Array.isArray(value)) return value.length === 0
  return value === undefined || value === '' || value === 0 || value === 0n || value === false
}

function valueCheck(field: DescField, rules: FieldRules | undefined): Check | undefined {
  const kind = rules?.type.case
  switch (field.fieldKind) {
    case 'list':
      return requireKind(field, kind, 'repeated') ?? listCheck(field, rules)
    case 'message':
      return requireKind(field, kind) ?? messageCheck(field.message)
    case 'enum':
      return requireKind(field, kind, 'enum') ?? enumCheck(field, rules)
    case 'scalar':
      return scalarCheck(field, field.scalar, rules)
    case 'map':
      throw new Error(`${field}: maps are not known here`)
  }
}

/** @throws Error when the rules are for another kind of field. */
function requireKind(field: DescField, kind: string | undefined, expected?: string): undefined {
  if (kind !== undefined && kind !== expected) throw new Error(`${field}: rules for ${kind} are not known here`)
}

function scalarCheck(field: DescField, scalar: ScalarType, rules: FieldRules | undefined): Check | undefined {
  const type = rules?.type
  if (scalar === ScalarType.STRING) {
    requireKind(field, type?.case, 'string')
    return stringCheck(type?.case === 'string' ? type.value : undefined)
  }
  if (type?.case === undefined) return undefined
  const isInt32 = scalar === ScalarType.INT32 && type.case === 'int32'
  const isInt64 = scalar === ScalarType.INT64 && type.case === 'int64'
  if (isInt32 || isInt64) return rangeCheck(given(type.value, 'gte'), given(type.value, 'lte'))
  throw new Error(`${field}: rules for ${type.case} are not known here`)
}

/** The value of a rule; undefined when it is not given, where the message itself would answer with a default. */
function given<R extends object, K extends keyof R>(rules: R | undefined, name: K): R[K] | undefined {
  return rules !== undefined && Object.hasOwn(rules, name) ? rules[name] : undefined
}

/** What a pattern demands, in words: a person may have to act on it. */
const demands: Readonly<Record<string, string>> = {
  '[^\\p{Z}\\p{C}\u115f\u1160\u2800\u3164\uffa0]': 'must not be blank', // the five are letters and a symbol that are invisible
  '^\\P{Cc}*$': 'must not contain control characters',
  '^[A-Za-z0-9._@+-]*$': 'only letters of ASCII, digits and . _ @ + - are allowed',
  '^$|^https?://[!-~]+$': 'must begin with https:// or http://, and hold no spaces or characters beyond ASCII',
  '^$|^https://[!-~]+$': 'must begin with https://, and hold no spaces or characters beyond ASCII',
  '^[a-z0-9][a-z0-9_-]*$': 'only a to z, digits, - and _ are allowed',
  '^$|^[A-Za-z0-9._~-]{43,128}$': 'must be 43 to 128 of A-Z, a-z, 0-9 and - . _ ~',
  '^[A-Za-z0-9._~-]*$': 'only letters of ASCII, digits and . _ ~ - are allowed',
}

function stringCheck(rules: StringRules | undefined): Check {
  const min = Number(given(rules, 'minLen') ?? 0)
  const max = Number(given(rules, 'maxLen') ?? Number.POSITIVE_INFINITY)
  const maxBytes = Number(given(rules, 'maxBytes') ?? Number.POSITIVE_INFINITY)
  const source = given(rules, 'pattern')
  const pattern = source === undefined ? undefined : new RegExp(source, 'u')
  const demand = demands[source ?? ''] ?? `must match ${source}`

  return (value: string, path) => {
    // UTF-16 units bound the number of characters from both sides; only the few texts in between need counting.
    if (value.length < min || (value.length < min * 2 && characters(value) < min))
      return { field: path, description: `at least ${min} characters` }
    if (value.length > max && (value.length > max * 2 || characters(value) > max))
      return { field: path, description: `at most ${max} characters` }
    if (value.length * 3 > maxBytes && Buffer.byteLength(value) > maxBytes)
      return { field: path, description: `at most ${maxBytes} bytes` }
    if (pattern && !pattern.test(value)) return { field: path, description: demand }
    if (value.includes('\0')) return { field: path, description: NO_NUL }
    return undefined
  }
}

/** Unicode code points, which is what protovalidate counts. */
function characters(value: string): number {
  let count = 0
  for (const _ of value) count += 1
  return count
}

function rangeCheck(gte: number | bigint | undefined, lte: number | bigint | undefined): Check {
  return (value: number | bigint, path) => {
    if (gte !== undefined && value < gte) return { field: path, description: `at least ${gte}` }
    if (lte !== undefined && value > lte) return { field: path, description: `at most ${lte}` }
    return undefined
  }
}

function enumCheck(field: DescField & { fieldKind: 'enum' }, rules: FieldRules | undefined): Check | undefined {
  if (rules?.type.case !== 'enum' || !rules.type.value.definedOnly) return undefined
  return (value: number, path) =>
    field.enum.value[value] ? undefined : { field: path, description: `not a value of ${field.enum.name}` }
}

function listCheck(field: DescField & { fieldKind: 'list' }, rules: FieldRules | undefined): Check | undefined {
  const list = rules?.type.case === 'repeated' ? rules.type.value : undefined
  const min = Number(given(list, 'minItems') ?? 0)
  const max = Number(given(list, 'maxItems') ?? Number.POSITIVE_INFINITY)
  const item = itemCheck(field, given(list, 'items'))
  if (!item && list === undefined) return undefined

  return (values: readonly unknown[], path) => {
    if (values.length < min) return { field: path, description: `at least ${min} items` }
    if (values.length > max) return { field: path, description: `at most ${max} items` }
    if (!item) return undefined
    for (let at = 0; at < values.length; at += 1) {
      const violation = item(values[at] as never, `${path}[${at}]`)
      if (violation !== undefined) return violation
    }
    return undefined
  }
}

function itemCheck(field: DescField & { fieldKind: 'list' }, rules: FieldRules | undefined): Check | undefined {
  switch (field.listKind) {
    case 'message':
      return messageCheck(field.message)
    case 'scalar':
      return scalarCheck(field, field.scalar, rules)
    case 'enum':
      if (rules) throw new Error(`${field}: rules for items that are enums are not known here`)
      return undefined
  }
}
