// Merges lists of audit events, each in the order of its database.

/** An event of any of them. */
export interface Dated {
  /** Sorts by time. */
  readonly event_id: string
  /** ISO 8601. */
  readonly created_at: string
}

export type Trail<Row> = AsyncIterable<readonly Row[]>

/** Without events before `start`. Ends at a page that holds nothing else, so that a clock set back does not end it early. */
export async function* since<Row extends Dated>(
  trail: Trail<Row>,
  start: Date | undefined,
): AsyncGenerator<readonly Row[]> {
  for await (const page of trail) {
    const found = page.filter((row) => start === undefined || Date.parse(row.created_at) >= start.getTime())
    if (found.length > 0) yield found
    else if (page.length > 0) return
  }
}

interface Ranked<Row> {
  readonly row: Row
  /**
   * The trails are merged by this: the id of the row, or a higher one of the older rows that follow it on its page. A row that was
   * written while the clock was behind has a low id, and those behind it would come too late.
   */
  readonly rank: string
}

/** One list in pages of `pageSize`. The rows of a trail stay in their order; between trails, the newer comes first. */
export async function* merged<Row extends Dated>(
  trails: readonly Trail<Row>[],
  pageSize: number,
): AsyncGenerator<readonly Row[]> {
  const heads = trails.map((trail) => {
    return { pages: trail[Symbol.asyncIterator](), left: [] as Ranked<Row>[], isOver: false }
  })
  let page: Row[] = []
  for (;;) {
    for (const head of heads) {
      while (head.left.length === 0 && !head.isOver) {
        const { value, done } = await head.pages.next()
        head.isOver = done === true
        head.left = ranked(value ?? [])
      }
    }
    const newest = heads.reduce((one, other) => (rankOf(other.left) > rankOf(one.left) ? other : one)).left.pop()
    if (newest) page.push(newest.row)
    if (page.length === pageSize || !newest) {
      yield page
      page = []
    }
    if (!newest) return
  }
}

/** The newest last. */
function ranked<Row extends Dated>(page: readonly Row[]): Ranked<Row>[] {
  let rank = ''
  return page.toReversed().map((row) => {
    if (row.event_id > rank) rank = row.event_id
    return { row, rank }
  })
}

function rankOf(left: readonly Ranked<unknown>[]): string {
  return left.at(-1)?.rank ?? ''
}
