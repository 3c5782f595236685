// Summarises the measured rounds: medians, ratios, targets.
import { contestants, lines } from './contestants.js'
import { median, middleHalf, pairedDifferences, pairedRatios } from './stats.js'

/**
 * The targets. `of` names the divisor: another contestant, on the same line. Its multiples of the peers are meant for
 * SQLite; on PostgreSQL it is to be ahead of them.
 */
const targets = [
  { name: 'all-in-one', of: 'ceiling', atLeast: { exchange: 0.15, refresh: 0.3, user: 0.65, detail: 0.6, list: 0.45 } },
  { name: 'all-in-one', of: 'oidc-provider', atLeast: { exchange: 12, refresh: 12 } },
  { name: 'all-in-one', of: 'node-oauth2-server', atLeast: { exchange: 6, refresh: 6 } },
  { name: 'postgres', of: 'oidc-provider-postgres', atLeast: { exchange: 1, refresh: 1, user: 1 } },
  { name: 'postgres', of: 'node-oauth2-server-postgres', atLeast: { exchange: 1, refresh: 1, user: 1 } },
  { name: 'separate', of: 'oidc-provider', atLeast: { exchange: 1, refresh: 1, user: 1 } },
  { name: 'separate', of: 'node-oauth2-server', atLeast: { exchange: 1, refresh: 1, user: 1 } },
]

/** What each further process may add to the median at half of the capacity, in ms, and how many are called in sequence. */
const hop = { name: 'separate', of: 'all-in-one', share: 0.5, mostMs: 1, hops: { exchange: 1, user: 1, detail: 2 } }

/** A generator busier than this may be what limited the result. */
const BUSY = 0.95

/** When the generator waited for its core for a larger share of the time, requests a second say little. */
export const DISTURBED = 0.05

/** Whoever has more requests unsent when the last is due than this share of those that are counted is overloaded. */
const BEHIND = 0.1

/** @param results what run.js measured */
export function figuresOf({ cells, memory }) {
  const find = (line, name) => cells.find((one) => one.line === line && one.name === name)

  const rows = cells.map((one) => {
    const ceiling = find(one.line, 'ceiling')
    return {
      ...one,
      rate: median(one.rates),
      ofCeiling: ceiling && median(pairedRatios(one.rates, ceiling.rates)),
      cpu: median(cpuPerRound(one)),
      latencyMs: { p50: median(one.p50), p99: median(one.p99) },
      open: one.open.filter(({ rounds }) => rounds.length > 0).map(middleOf),
      isGeneratorBusy: one.busy > BUSY,
    }
  })
  const waited = median(cells.flatMap((one) => one.waited))
  const judged = targets.flatMap(({ name, of, atLeast }) =>
    Object.entries(atLeast).flatMap(([line, target]) => {
      const one = find(line, name)
      const base = find(line, of)
      if (!one || !base) return []
      const ratios = pairedRatios(one.rates, base.rates)
      const ratio = median(ratios)
      const byCpu = median(pairedRatios(cpuPerRound(base), cpuPerRound(one)))
      return [{ line, name, of, target, ratio, spread: middleHalf(ratios), byCpu, isMet: ratio >= target }]
    }),
  )
  const halfLoadMs = (line, name) =>
    find(line, name)
      ?.open.find(({ share }) => share === hop.share)
      .rounds.map(({ p50 }) => p50) ?? []
  const hops = Object.entries(hop.hops).flatMap(([line, count]) => {
    const added = pairedDifferences(halfLoadMs(line, hop.name), halfLoadMs(line, hop.of)).map((ms) => ms / count)
    if (added.length === 0) return []
    const addedMs = median(added)
    return [{ line, count, addedMs, spread: middleHalf(added), mostMs: hop.mostMs, isMet: addedMs < hop.mostMs }]
  })
  return {
    lines: Object.keys(lines).filter((line) => cells.some((one) => one.line === line)),
    names: Object.keys(contestants).filter((name) => cells.some((one) => one.name === name)),
    rows,
    row: (line, name) => rows.find((one) => one.line === line && one.name === name),
    judged,
    hops,
    waited,
    isDisturbed: !(waited <= DISTURBED),
    memory,
  }
}

/** The open loop at one share: the median of each figure over its rounds; overload and lag are those of all rounds. */
function middleOf({ share, rounds }) {
  const middle = (name) => median(rounds.map((one) => one[name]))
  return {
    share,
    count: middle('count'),
    p50: middle('p50'),
    p99: middle('p99'),
    p999: middle('p999'),
    loopDelayMs: middle('loopDelayMs'),
    overloaded: rounds.filter(({ backlog, count }) => backlog > BEHIND * count).length,
    worstLagMs: Math.max(...rounds.map(({ worstLagMs }) => worstLagMs)),
  }
}

/** CPU µs a request takes in all processes of a contestant, round by round. */
function cpuPerRound({ cpuMicros }) {
  return cpuMicros.map((processes) => processes.reduce((sum, micros) => sum + micros, 0))
}
