// The common form of rows of both databases: each value as text, the same on either side, so that it can be copied and compared
// without a driver's idea of types in between.

/** What a column holds. */
export type Kind = 'text' | 'integer' | 'boolean' | 'bytes' | 'strings'

/**
 * A value as text: integers in decimal, booleans as 0 and 1, bytes in upper-case hex, lists of strings as JSON without
 * spaces. Null is null.
 */
export type Value = string | null

export interface Column {
  readonly name: string
  readonly kind: Kind
}

export interface Table {
  readonly name: string
  /** SQL: what its rows are selected from in SQLite. */
  readonly rows: string
  /** In SQLite's order. */
  readonly columns: readonly Column[]
}

/** SQL expressions that convert between a column and its text. */
interface Form {
  readonly ofSqlite: (column: string) => string
  readonly ofPostgres: (column: string) => string
  /** Back from the text, for an INSERT into PostgreSQL. */
  readonly intoPostgres: (text: string) => string
}

export const forms: Readonly<Record<Kind, Form>> = {
  text: {
    ofSqlite: (column) => column,
    ofPostgres: (column) => column,
    intoPostgres: (text) => text,
  },
  integer: {
    ofSqlite: (column) => `CAST(${column} AS TEXT)`,
    ofPostgres: (column) => `${column}::text`,
    intoPostgres: (text) => `${text}::bigint`,
  },
  boolean: {
    ofSqlite: (column) => `CAST(${column} AS TEXT)`,
    ofPostgres: (column) => `${column}::integer::text`,
    intoPostgres: (text) => `${text}::integer::boolean`,
  },
  bytes: {
    ofSqlite: (column) => `iif(${column} IS NULL, NULL, hex(${column}))`,
    ofPostgres: (column) => `upper(encode(${column}, 'hex'))`,
    intoPostgres: (text) => `decode(${text}, 'hex')`,
  },
  strings: {
    ofSqlite: (column) => column,
    ofPostgres: (column) => `array_to_json(${column})::text`,
    intoPostgres: (text) =>
      `ARRAY(SELECT value FROM json_array_elements_text(${text}::json) WITH ORDINALITY ORDER BY ordinality)`,
  },
}

const kindOfType: ReadonlyMap<string, Kind> = new Map([
  ['text', 'text'],
  ['int8', 'integer'],
  ['int4', 'integer'],
  ['bool', 'boolean'],
  ['bytea', 'bytes'],
  ['_text', 'strings'],
])

/** The kind of a PostgreSQL column, by the name of its type in pg_type. @throws TypeError for a type without one. */
export function kindOf(type: string): Kind {
  const kind = kindOfType.get(type)
  if (kind === undefined) throw new TypeError(`the copy knows no columns of type ${type}`)
  return kind
}

export function quoted(name: string): string {
  return `"${name.replaceAll('"', '""')}"`
}
