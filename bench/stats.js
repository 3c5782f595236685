// Arithmetic of the benchmark.

/** Nearest rank: the smallest value that `share` (0 to 1) of all values do not exceed. NaN without values. */
export function percentile(sorted, share) {
  if (sorted.length === 0) return Number.NaN
  const rank = Math.ceil(share * sorted.length)
  return sorted[Math.min(sorted.length, Math.max(1, rank)) - 1]
}

/** p50, p99, p99.9 and the maximum of latencies in any order. */
export function summary(latencies) {
  const sorted = Float64Array.from(latencies).sort()
  return {
    count: sorted.length,
    p50: percentile(sorted, 0.5),
    p99: percentile(sorted, 0.99),
    p999: percentile(sorted, 0.999),
    max: percentile(sorted, 1),
  }
}

/** The middle value, or the mean of the two in the middle; unknown values (NaN) are left out. NaN without values. */
export function median(values) {
  const sorted = known(values)
  const middle = sorted.length >> 1
  if (sorted.length % 2 === 1) return sorted[middle]
  return sorted.length === 0 ? Number.NaN : (sorted[middle - 1] + sorted[middle]) / 2
}

/** Rounded to one decimal. */
export function tenths(value) {
  return Math.round(value * 10) / 10
}

/** The ratios round by round: a busy machine slows both sides of a round. */
export function pairedRatios(values, bases) {
  return paired(values, bases, (value, base) => value / base)
}

/** The differences round by round, likewise. */
export function pairedDifferences(values, bases) {
  return paired(values, bases, (value, base) => value - base)
}

function paired(values, bases, combine) {
  const rounds = Math.min(values.length, bases.length)
  return Array.from({ length: rounds }, (_, round) => combine(values[round], bases[round]))
}

/** The least and the greatest value when a quarter is left out at each end; unknown values (NaN) are left out, too. */
export function middleHalf(values) {
  const sorted = known(values)
  const cut = Math.floor(sorted.length / 4)
  return [sorted[cut] ?? Number.NaN, sorted.at(-1 - cut) ?? Number.NaN]
}

function known(values) {
  return values.filter((value) => !Number.isNaN(value)).sort((a, b) => a - b)
}

/** When request `index` of an open loop is due, in ms from its start. */
export function dueAtMs(index, rate) {
  return (index * 1000) / rate
}

/** How many requests of an open loop are due `elapsedMs` after its start; the first is due at 0. */
export function dueBy(elapsedMs, rate) {
  if (elapsedMs < 0) return 0
  return Math.floor((elapsedMs * rate) / 1000) + 1
}
