/** Items in a batch: enough to share the cost of a message. */
const MAX_ITEMS = 128

interface Bounds<Item> {
  readonly maxItems?: number
  readonly maxBytes: number
  readonly sizeOf: (item: Item) => number
}

/** All items in their order, in batches of up to `maxBytes`; a single larger item still makes one. */
export function* inBatches<Item>(
  items: Iterable<Item>,
  { maxItems = MAX_ITEMS, maxBytes, sizeOf }: Bounds<Item>,
): Generator<Item[]> {
  let batch: Item[] = []
  let bytes = 0
  for (const item of items) {
    const size = sizeOf(item)
    if (batch.length === maxItems || (batch.length > 0 && bytes + size > maxBytes)) {
      yield batch
      batch = []
      bytes = 0
    }
    batch.push(item)
    bytes += size
  }
  if (batch.length > 0) yield batch
}
