// Threads for hashing passwords. A hash takes tens of ms of a core, so a crowd signing in could occupy every core: these
// threads run at a lower priority than the others, and libuv's stay free for the disk.
import { createRequire } from 'node:module'
import { Worker } from 'node:worker_threads'
import { SIDE_THREAD } from '../../storage/side-thread.js'

/** What these threads can do: functions that occupy a thread until they are done. */
interface Work {
  argon2Hash: typeof import('@node-rs/argon2').hashSync
  argon2Verify: typeof import('@node-rs/argon2').verifySync
  bcryptVerify: typeof import('@node-rs/bcrypt').verifySync
  pbkdf2: typeof import('node:crypto').pbkdf2Sync
  scrypt: typeof import('node:crypto').scryptSync
}

interface Job {
  readonly name: keyof Work
  readonly args: readonly unknown[]
  readonly resolve: (result: never) => void
  readonly reject: (error: unknown) => void
}

/** Next to a thread that is always busy, one of these gets a tenth of the core. */
const NICENESS = 10

/** As source text, since it must run both from TypeScript and from the compiled output. */
const threadSource = `
const { parentPort, workerData } = require('node:worker_threads')
const { setPriority } = require('node:os')
const argon2 = require(workerData.argon2)
const bcrypt = require(workerData.bcrypt)
const { pbkdf2Sync, scryptSync } = require('node:crypto')
const work = {
  argon2Hash: argon2.hashSync,
  argon2Verify: argon2.verifySync,
  bcryptVerify: bcrypt.verifySync,
  pbkdf2: pbkdf2Sync,
  scrypt: scryptSync,
}
try {
  if (process.platform === 'linux') setPriority(0, ${NICENESS}) // of this thread alone; elsewhere it is the process's
} catch {} // priorities may not be changed, as in a tight sandbox
parentPort.on('message', ({ name, args }) => {
  try {
    parentPort.postMessage({ result: work[name](...args) })
  } catch (error) {
    parentPort.postMessage({ error })
  }
})`

const { resolve } = createRequire(import.meta.url)
const libraries = { argon2: resolve('@node-rs/argon2'), bcrypt: resolve('@node-rs/bcrypt') }
/** Of this process, idle. */
const free: Thread[] = []

class Thread {
  readonly #worker = new Worker(threadSource, { ...SIDE_THREAD, eval: true, workerData: libraries })
  #job: Job | undefined

  constructor() {
    this.#worker.on('message', (outcome: { readonly result: never } | { readonly error: unknown }) => {
      const job = this.#job
      this.#job = undefined
      this.#worker.unref()
      free.push(this)
      if ('error' in outcome) job?.reject(outcome.error)
      else job?.resolve(outcome.result)
    })
    this.#worker.on('error', (error) => this.#lost(error))
    this.#worker.on('exit', () => this.#lost(new Error('a thread that hashes passwords has ended')))
  }

  /** One at a time; keeps the process alive until it is done. */
  run(job: Job): void {
    this.#job = job
    this.#worker.ref()
    this.#worker.postMessage({ name: job.name, args: job.args })
  }

  #lost(error: unknown): void {
    const index = free.indexOf(this)
    if (index >= 0) free.splice(index, 1)
    this.#job?.reject(error)
    this.#job = undefined
  }
}

/**
 * Starts this many, for a process that serves: a thread that starts when a crowd is there holds it up.
 * @throws what loading the libraries throws
 */
export async function startHashingThreads(count: number): Promise<void> {
  const cheap = { memoryCost: 8, timeCost: 1, parallelism: 1 }
  await Promise.all(Array.from({ length: count }, () => inThread('argon2Hash', 'no password', cheap)))
}

/** What the function answers, from a thread: one that is free, or a new one. */
export function inThread<Name extends keyof Work>(
  name: Name,
  ...args: Parameters<Work[Name]>
): Promise<ReturnType<Work[Name]>> {
  return new Promise((resolve, reject) => {
    const thread = free.pop() ?? new Thread()
    thread.run({ name, args, resolve, reject })
  })
}
