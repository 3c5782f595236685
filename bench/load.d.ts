import type { Summary } from './stats.js'

export interface Job {
  readonly port: number
  readonly requests: readonly string[]
  readonly once?: boolean
  readonly marker: string
  readonly connections?: number
  readonly warmupMs?: number
  readonly warmupAnswers?: number
  readonly durationMs: number
  readonly pids?: readonly number[]
}
export interface Result {
  readonly failures: number
  readonly examples: readonly { readonly why: string; readonly times: number }[]
  readonly rate: number
  readonly latency: Summary
}
export const INCOMPLETE: unique symbol
export class Answers {
  constructor(marker: string)
  judge(text: string): string | typeof INCOMPLETE | undefined
}
export function closedLoop(job: Job): Promise<
  Result & {
    readonly seconds: number
    readonly cpuMicros: readonly number[]
    readonly busy: number
    readonly waited: number
  }
>
export function openLoop(
  job: Job & { readonly rate: number },
): Promise<Result & { readonly backlog: number; readonly worstLagMs: number }>
