// Lists in pages. The page tokens of RPCs are the stores' positions, unchanged.
import { isEventId } from './event-ids.js'
import { StoreRefused } from './store-refused.js'

const DEFAULT_PAGE_SIZE = 100
const MAX_PAGE_SIZE = 1000

/**
 * Which page of a list: `after` is the `next` of the page before, undefined for the start. A malformed one is refused
 * with StoreRefused.
 */
export interface PageOf {
  readonly limit: number
  readonly after: string | undefined
}

export interface Page<Row> {
  readonly rows: readonly Row[]
  /** Pass as `after` to go on; undefined at the end. */
  readonly next: string | undefined
}

interface PageRequest {
  readonly pageSize: number
  readonly pageToken: string
}

/**
 * The page a list request asks for. `positions`: the form of positions in a list of which the store would take any text for one.
 * @throws as parseTimePosition
 */
export function pageOf({ pageSize, pageToken }: PageRequest, positions?: RegExp): PageOf {
  if (pageToken !== '' && positions?.test(pageToken) === false) throw notValid()
  return {
    limit: Math.min(pageSize || DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE),
    after: pageToken === '' ? undefined : pageToken,
  }
}

/** Keeps `limit` rows of a query that asked for one more; `next` is the position of the last of them when more follow. */
export function cutPage<Row>(rows: readonly Row[], limit: number, positionOf: (row: Row) => string): Page<Row> {
  const last = rows[limit - 1]
  if (rows.length <= limit || last === undefined) return { rows, next: undefined }
  return { rows: rows.slice(0, limit), next: positionOf(last) }
}

/** A position in a list ordered by time, then id. */
export interface TimePosition {
  readonly atMs: number
  readonly id: string
}

export function formatTimePosition({ atMs, id }: TimePosition): string {
  return `${atMs}.${id}`
}

/** @throws StoreRefused when it is not a position: it comes from callers. */
export function parseTimePosition(text: string): TimePosition {
  const match = /^(\d{1,16})\.(.+)$/s.exec(text)
  if (!match?.[1] || !match[2]) throw notValid()
  return { atMs: Number(match[1]), id: match[2] }
}

/** A position in a list ordered by a number. @throws as parseTimePosition */
export function parseNumber(text: string): number {
  if (!/^\d{1,15}$/.test(text)) throw notValid()
  return Number(text)
}

/** In a list of events by their ids, newest first: the id before which the page begins. @throws as parseTimePosition */
export function eventIdBefore({ after }: PageOf): string {
  if (after === undefined) return '~' // sorts after every id
  if (!isEventId(after)) throw notValid()
  return after
}

const notValid = () => new StoreRefused('the page token is not valid')
