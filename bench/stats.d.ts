export interface Summary {
  readonly count: number
  readonly p50: number
  readonly p99: number
  readonly p999: number
  readonly max: number
}
export function percentile(sorted: ArrayLike<number>, share: number): number
export function summary(latencies: readonly number[]): Summary
export function median(values: readonly number[]): number
export function tenths(value: number): number
export function pairedRatios(values: readonly number[], bases: readonly number[]): number[]
export function pairedDifferences(values: readonly number[], bases: readonly number[]): number[]
export function middleHalf(values: readonly number[]): [number, number]
export function dueAtMs(index: number, rate: number): number
export function dueBy(elapsedMs: number, rate: number): number
