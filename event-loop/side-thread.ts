import type { WorkerOptions } from 'node:worker_threads'

/**
 * For a thread that does one thing beside the main one. It has nothing of this process's options, which may preload what is
 * to run once only, such as a tracer, and little memory for what is short-lived (MiB), of which the main thread is given much.
 */
export const SIDE_THREAD: WorkerOptions = { execArgv: [], env: {}, resourceLimits: { maxYoungGenerationSizeMb: 3 } }
