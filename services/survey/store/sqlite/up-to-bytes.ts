/** The first rows, up to the one with which their documents reach `maxBytes`. The others are not read. */
export function upToBytes<Row extends { readonly document: Uint8Array }>(
  maxBytes: number,
  found: Iterable<Row>,
): Row[] {
  const rows: Row[] = []
  let bytes = 0
  for (const row of found) {
    rows.push(row)
    bytes += row.document.length
    if (bytes >= maxBytes) break
  }
  return rows
}
