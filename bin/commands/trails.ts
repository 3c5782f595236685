// Lists of audit events, each in the order in which its database has them, put together.

/** Of any of them. */
export interface Dated {
  /** Sorts by time. */
  readonly event_id: string
  /** ISO 8601. */
  readonly created_at: string
}

export type Trail<Row> = AsyncIterable<readonly Row[]>

/** Without what was before `start`. Ends with a page that has nothing else: a clock that was set back is passed over. */
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
  /** The highest id of it and of what follows on its page, which one whose clock was behind must not keep back. */
  readonly rank: string
}

/** One list, the newest first as far as each of them is, in pages of `pageSize`. */
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
