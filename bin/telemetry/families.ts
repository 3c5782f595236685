// Counters and histograms by label, for what happens several times in every request: finding a cell costs one lookup per
// label and builds no string. prom-client's own sort and join their labels on every call. It exports these like its own.
import type { Registry } from 'prom-client'

export interface Family {
  readonly name: string
  readonly help: string
  readonly labelNames: readonly string[]
  readonly registry: Registry
}

interface Sample {
  readonly metricName: string
  readonly labels: Record<string, string>
  readonly value: number
}

/** What is below a label value: the cell, after the last label, or branches by the values of the next. */
interface Branch<Cell> {
  readonly byValue: Map<string, Branch<Cell>>
  cell?: Cell
}

/** The cells of a family: one per combination of label values, made when it is first asked for. */
class Cells<Cell> {
  readonly #family: Family
  readonly #create: () => Cell
  readonly #root: Branch<Cell> = { byValue: new Map() }
  readonly #all: { readonly labels: Record<string, string>; readonly cell: Cell }[] = []

  constructor(family: Family, type: 'counter' | 'histogram', create: () => Cell, samples: (cell: Cell) => Sample[]) {
    this.#family = family
    this.#create = create
    const { name, help } = family
    const get = async () => ({
      name,
      help,
      type,
      aggregator: 'sum',
      values: this.#all.flatMap(({ labels, cell }) =>
        samples(cell).map((sample) => ({ ...sample, labels: { ...sample.labels, ...labels } })),
      ),
    })
    const metric = { name, get }
    family.registry.registerMetric(metric as never) // the registry uses no more of a metric than this
  }

  of(values: readonly string[]): Cell {
    let branch = this.#root
    for (const value of values) {
      let next = branch.byValue.get(value)
      if (next === undefined) {
        next = { byValue: new Map() }
        branch.byValue.set(value, next)
      }
      branch = next
    }
    branch.cell ??= this.#add(values)
    return branch.cell
  }

  #add(values: readonly string[]): Cell {
    const { name, labelNames } = this.#family
    if (values.length !== labelNames.length) throw new TypeError(`${name} has other labels`)
    const labels = Object.fromEntries(labelNames.map((label, index) => [label, values[index] ?? '']))
    const cell = this.#create()
    this.#all.push({ labels, cell })
    return cell
  }
}

/** Adds `by` to the counter of these label values, in the order of the family's names. */
export type Count = (values: readonly string[], by?: number) => void

export function counterFamily(family: Family): Count {
  const cells = new Cells(
    family,
    'counter',
    () => ({ value: 0 }),
    ({ value }) => [{ metricName: family.name, labels: {}, value }],
  )
  return (values, by = 1) => {
    cells.of(values).value += by
  }
}

/** Adds an observation to the histogram of these label values. */
export type Observe = (values: readonly string[], value: number) => void

/** `buckets`: upper bounds, ascending. */
export function histogramFamily(family: Family, buckets: readonly number[]): Observe {
  const { name } = family
  const cells = new Cells(
    family,
    'histogram',
    () => ({ counts: new Array<number>(buckets.length + 1).fill(0), sum: 0 }),
    ({ counts, sum }) => {
      let count = 0
      const cumulative = counts.map((ofBucket, index) => {
        count += ofBucket
        return { metricName: `${name}_bucket`, labels: { le: String(buckets[index] ?? '+Inf') }, value: count }
      })
      const total = (suffix: string, value: number) => ({ metricName: `${name}_${suffix}`, labels: {}, value })
      return [...cumulative, total('sum', sum), total('count', count)]
    },
  )
  return (values, value) => {
    const cell = cells.of(values)
    let bucket = 0
    while (bucket < buckets.length && value > (buckets[bucket] ?? 0)) bucket++
    cell.counts[bucket] = (cell.counts[bucket] ?? 0) + 1
    cell.sum += value
  }
}
