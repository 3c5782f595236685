// The rule by which old and new programs share a database, for both kinds of database: a step expands, so that programs of before go
// on beside the new ones and after a way back; what they still need goes a release later, with a step that excludes them.
import { DatabaseRefused } from './database-refused.js'

/** One step of a schema's history. Released steps never change. */
export interface Migration {
  /** From 1, without gaps. */
  readonly version: number
  readonly name: string
  readonly sql: string
  /** For a step that contracts: programs that know fewer steps than this cannot use the result. Others all can. */
  readonly usableFrom?: number
}

/** What a database records of its schema. */
export interface SchemaState {
  /** Steps that were taken, 0 when it is empty. */
  readonly version: number
  /** Steps that a program must know to use it. */
  readonly usableFrom: number
}

/** Of a database after all steps. */
export function stateAfter(migrations: readonly Migration[]): SchemaState {
  const usableFrom = Math.max(0, ...migrations.map((migration) => migration.usableFrom ?? 0))
  return { version: migrations.length, usableFrom }
}

/** `what`: the database, for messages. @throws DatabaseRefused when a program that knows these steps cannot use it. */
export function requireUsable({ version, usableFrom }: SchemaState, known: readonly Migration[], what: string): void {
  if (usableFrom <= known.length) return
  throw new DatabaseRefused(
    `${what} has schema version ${version}, which needs a program that knows ${usableFrom}; this one knows ${known.length}: run a newer program`,
  )
}

/** For whoever must know all that is there. @throws DatabaseRefused unless the database has the steps that this program knows. */
export function requireSame(version: number, known: readonly Migration[], what: string): void {
  if (version === known.length) return
  const advice = version > known.length ? 'run a newer program' : 'run `survey-auth migrate` on it first'
  throw new DatabaseRefused(`${what} has schema version ${version}, this program knows ${known.length}: ${advice}`)
}

/** What operators are told of a database that a newer program has migrated and this one may use; undefined for others. */
export function newerSchema(version: number, known: readonly Migration[]): string | undefined {
  return version > known.length ? `this program knows ${known.length} and may use it` : undefined
}
