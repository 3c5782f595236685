import type { WorkerOptions } from 'node:worker_threads'

/**
 * For a thread that does one thing beside the main one. It inherits none of this process's options, which may preload what
 * must run only once, such as a tracer, and gets a small young generation (MiB), while the main thread has a large one.
 */
export const SIDE_THREAD: WorkerOptions = { execArgv: [], env: {}, resourceLimits: { maxYoungGenerationSizeMb: 3 } }
