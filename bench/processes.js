// Child processes of the benchmark: pinned to a core, sent messages, and ended with it, unless it is killed with SIGKILL.
import { spawn, spawnSync } from 'node:child_process'
import { closeSync, ftruncateSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { root } from './root.js'

/** Short enough to measure a start. */
const READY_POLL_MS = 5

const children = new Set()
/** Folders and files that are removed when the benchmark ends. */
const folders = new Set()

/** Ends every child and removes every folder; synchronous, so that it works in an exit handler. */
function cleanUp() {
  // Our children end at once when told to, except one that ends its PostgreSQL first.
  for (const child of children) child.kill(child.connected ? 'SIGTERM' : 'SIGKILL')
  for (const folder of folders) {
    try {
      rmSync(folder, { recursive: true, force: true, maxRetries: 5, retryDelay: 50 })
    } catch (error) {
      process.stderr.write(`bench: ${folder} could not be removed (${error.code})\n`)
    }
  }
  folders.clear()
}

/** Two benchmarks at once would disturb each other: the second ends with 1. What either leaves is removed at its end. */
export function startAlone() {
  cleanUpAtExit()
  const other = otherBenchmark()
  if (other === undefined) return
  process.stderr.write(`bench: another benchmark runs, process ${other}; try again when it has ended\n`)
  process.exit(1)
}

/** Also when a signal ends this process. */
function cleanUpAtExit() {
  process.on('exit', cleanUp)
  for (const [signal, number] of Object.entries({ SIGINT: 2, SIGTERM: 15, SIGHUP: 1 })) {
    process.once(signal, () => process.exit(128 + number))
  }
}

/** @returns the process of another benchmark on this machine, if any */
function otherBenchmark() {
  const lock = path.join(os.tmpdir(), 'survey-auth-bench.lock')
  for (let attempt = 0; attempt < 2; attempt++) {
    try {
      writeFileSync(lock, String(process.pid), { flag: 'wx' })
      folders.add(lock)
      return undefined
    } catch (error) {
      if (error.code !== 'EEXIST') throw error
      const pid = Number(readFileSync(lock, 'utf8'))
      if (isRunning(pid)) return pid
      rmSync(lock, { force: true })
    }
  }
  throw new Error(`${lock} cannot be taken over`)
}

function isRunning(pid) {
  try {
    return pid > 0 && process.kill(pid, 0)
  } catch (error) {
    return error.code === 'EPERM'
  }
}

/** A folder that is removed when the benchmark ends. */
export function temporaryFolder(name) {
  const folder = mkdtempSync(path.join(os.tmpdir(), `survey-auth-bench-${name}-`))
  folders.add(folder)
  return folder
}

/** The cores servers and generator are pinned to; undefined where that is impossible. */
export const cores = (() => {
  if (spawnSync('taskset', ['-V']).status !== 0) return undefined
  const list = /^Cpus_allowed_list:\s*(\S+)/m.exec(readFileSync('/proc/self/status', 'utf8'))?.[1] ?? ''
  const allowed = list.split(',').flatMap((range) => {
    const [first, last = first] = range.split('-').map(Number)
    return Array.from({ length: last - first + 1 }, (_, index) => first + index)
  })
  const [server, ...others] = allowed
  const load = others.find((core) => !isSameCore(core, server)) ?? others[0]
  return load === undefined ? undefined : { server, load }
})()

/** Whether they are hyperthreads of one core. */
function isSameCore(one, other) {
  try {
    const file = (core) => readFileSync(`/sys/devices/system/cpu/cpu${core}/topology/thread_siblings_list`, 'utf8')
    return file(one) === file(other)
  } catch {
    return false
  }
}

/** The options with which the command of the survey-auth in this folder starts Node. */
export function flagsOf(product) {
  const command = readFileSync(path.join(product, 'bin', 'survey-auth.js'), 'utf8')
  const [, options] = /exec node (.*) "\$0"/.exec(command) ?? []
  if (options === undefined) throw new Error(`${product} has a command that starts Node in another way than this knows`)
  return options.split(' ')
}

/** Peers get the same options: they help them too. */
export const SERVER_FLAGS = flagsOf(root)

/**
 * Starts `node ...flags ...args` on the core of `role`.
 * @param {{ role: 'server' | 'load', flags?: string[], env?: Record<string, string>, log?: string, ipc?: boolean }} options
 */
export function startNode(args, { role, flags = role === 'server' ? SERVER_FLAGS : [], env = {}, log, ipc = false }) {
  const output = log === undefined ? 'inherit' : openSync(log, 'a')
  const node = [process.execPath, ...flags, ...args]
  const command = cores ? ['taskset', '-c', String(cores[role]), ...node] : node
  const child = spawn(command[0], command.slice(1), {
    env: { PATH: process.env.PATH, NODE_ENV: 'production', ...env },
    stdio: ['ignore', output === 'inherit' ? 2 : output, output === 'inherit' ? 2 : output, ...(ipc ? ['ipc'] : [])],
    serialization: 'advanced',
  })
  children.add(child)
  child.once('exit', () => {
    children.delete(child)
    if (output !== 'inherit') closeSync(output)
  })
  return {
    child,
    pid: child.pid,
    /** Keeps the log from filling the disk. */
    emptyLog: () => output !== 'inherit' && child.exitCode === null && ftruncateSync(output),
    hasEnded: () => child.exitCode !== null || child.signalCode !== null,
    lastLogged: () => (log === undefined ? '' : readFileSync(log, 'utf8').trimEnd().split('\n').slice(-3).join('\n')),
  }
}

/** The load generator, ready for jobs. */
export async function startGenerator() {
  const generator = startNode([fileURLToPath(new URL('load-process.js', import.meta.url))], { role: 'load', ipc: true })
  await ask(generator.child, undefined, 10_000)
  return generator
}

/** Sends a message and fulfils with the answer; one message at a time. */
export function ask(child, message, timeoutMs) {
  return new Promise((resolve, reject) => {
    const settle = (settleWith, value) => {
      clearTimeout(timer)
      child.off('message', onMessage)
      child.off('exit', onExit)
      settleWith(value)
    }
    const onMessage = (answer) => {
      if (answer.error) settle(reject, new Error(answer.error))
      else settle(resolve, answer)
    }
    const onExit = () => settle(reject, new Error('a process of the benchmark ended'))
    const timer = setTimeout(() => settle(reject, new Error('a process of the benchmark does not answer')), timeoutMs)
    child.on('message', onMessage)
    child.on('exit', onExit)
    if (message !== undefined) child.send(message)
  })
}

/** Waits until a survey-auth process says that it serves. */
export async function untilReady(started, adminUrl, timeoutMs) {
  const giveUpAt = Date.now() + timeoutMs
  for (;;) {
    if (started.hasEnded()) throw new Error(`a survey-auth ended at its start:\n${started.lastLogged()}`)
    const isReady = await fetch(`${adminUrl}/readyz`).then(
      (answer) => answer.ok,
      () => false,
    )
    if (isReady) return
    if (Date.now() > giveUpAt) throw new Error(`a survey-auth is not ready after ${timeoutMs} ms`)
    await new Promise((resolve) => setTimeout(resolve, READY_POLL_MS))
  }
}

export async function stop(started) {
  if (started.hasEnded()) return
  const ended = new Promise((resolve) => started.child.once('exit', resolve))
  started.child.kill('SIGTERM')
  const timer = setTimeout(() => started.child.kill('SIGKILL'), 5_000)
  await ended
  clearTimeout(timer)
}

/** The descendants of a process, as far as /proc shows them. */
export function descendants(pid) {
  let text = ''
  try {
    text = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8')
  } catch {
    return []
  }
  return text
    .split(' ')
    .filter(Boolean)
    .map(Number)
    .flatMap((child) => [child, ...descendants(child)])
}

/** Resident memory in MiB; NaN without /proc. */
export function residentMiB(pid) {
  try {
    return Number(/^VmRSS:\s*(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]) / 1024
  } catch {
    return Number.NaN
  }
}
