// The service as its operators run it: a spawned process and its command line.
import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { onTestFinished } from 'vitest'
import { inShell } from '../../bin/shell.js'
import { type CommandResult, runInHost } from './command-host.js'
import { freePort } from './free-port.js'
import { send } from './http.js'
import { BUILD, PROGRAM } from './spawn.js'

const START_TIMEOUT_MS = 60_000 // on a machine that is busy with other suites

export type Environment = Readonly<Record<string, string>>

export interface CommandOptions {
  /** The command's stdin; empty if undefined. */
  readonly input?: string | Uint8Array
  readonly env?: Environment | undefined
  /** Another than the built one; for `cli`. */
  readonly program?: string
  /** A `serve` that is refused before it starts anything needs no process of its own. */
  readonly startsNothing?: true
}

/** A data directory and the command line for it; a server runs on it between `start` and `stop` or `kill`. */
export class ServiceProcess {
  readonly dataDir: string
  readonly url: string
  readonly #env: Environment
  #child: ChildProcess | undefined
  #output = ''

  constructor(dataDir: string, port: number, env: Environment) {
    this.dataDir = dataDir
    this.url = `http://127.0.0.1:${port}`
    this.#env = { ...inherited(), DATA_DIR: dataDir, PORT: String(port), ADMIN_PORT: '0', RATE_LIMIT: 'off', ...env }
  }

  /** Everything that server processes have written to stdout and stderr so far. */
  get output(): string {
    return this.#output
  }

  /** The running server's pid. */
  get pid(): number {
    const pid = this.#child?.pid
    if (pid === undefined) throw new Error('no server runs')
    return pid
  }

  async start(): Promise<void> {
    const child = spawn(process.execPath, [PROGRAM, 'serve', 'all'], { env: this.#env, cwd: this.dataDir })
    this.#child = child
    const collect = (chunk: Buffer) => {
      this.#output += chunk.toString('utf8')
    }
    child.stdout.on('data', collect)
    child.stderr.on('data', collect)
    await this.#untilItAnswers(child)
  }

  /** Ends the server as a supervisor does; returns its exit code. */
  stop(): Promise<number> {
    return this.#end('SIGTERM')
  }

  /** Ends the server as a crash does. */
  async kill(): Promise<void> {
    await this.#end('SIGKILL')
  }

  /** Ends the server and removes the data directory. */
  async remove(): Promise<void> {
    await this.kill()
    await rm(this.dataDir, { recursive: true, force: true })
  }

  /** Sends a signal and does not wait. */
  signal(name: NodeJS.Signals): void {
    this.#child?.kill(name)
  }

  /** Exit code of the server once it has ended by itself; -1 when a signal ended it. */
  ended(): Promise<number> {
    const child = this.#child
    if (child === undefined) throw new Error('the server was not started')
    if (child.exitCode !== null) return Promise.resolve(child.exitCode)
    return new Promise((resolve) => child.once('close', (code) => resolve(code ?? -1)))
  }

  /** Runs `survey-auth ARGS` on the same data directory, in a process of its own. */
  cli(args: readonly string[], options: CommandOptions = {}): Promise<CommandResult> {
    return new Promise((resolve, reject) => {
      const env = { ...this.#env, ...options.env }
      const child = spawn(process.execPath, [options.program ?? PROGRAM, ...args], { env, cwd: this.dataDir })
      let stdout = ''
      let stderr = ''
      child.stdout.on('data', (chunk: Buffer) => {
        stdout += chunk.toString('utf8')
      })
      child.stderr.on('data', (chunk: Buffer) => {
        stderr += chunk.toString('utf8')
      })
      child.on('error', reject)
      child.on('close', (code) => resolve({ exitCode: code ?? -1, stdout, stderr }))
      child.stdin.end(options.input ?? '')
    })
  }

  /** As `cli`, but on a terminal, which util-linux's `script` makes: each text is typed once the terminal has shown what stands before it. */
  onTerminal(
    args: readonly string[],
    dialogue: readonly (readonly [shown: string, typed: string])[] = [],
    options: Pick<CommandOptions, 'env'> = {},
  ): Promise<{ readonly exitCode: number; readonly screen: string }> {
    return new Promise((resolve, reject) => {
      const line = [process.execPath, PROGRAM, ...args].map(inShell).join(' ')
      const env = { ...this.#env, ...options.env, SHELL: '/bin/sh' }
      const child = spawn('script', ['-qec', line, '/dev/null'], { env, cwd: this.dataDir })
      let screen = ''
      let read = 0
      const left = [...dialogue]
      child.stdout.on('data', (chunk: Buffer) => {
        screen += chunk.toString('utf8')
        const [shown, typed] = left[0] ?? []
        const at = shown === undefined ? -1 : screen.indexOf(shown, read)
        if (shown === undefined || at < 0) return
        read = at + shown.length
        left.shift()
        child.stdin.write(typed)
      })
      child.on('error', reject)
      child.on('close', (code) => resolve({ exitCode: code ?? -1, screen }))
    })
  }

  /** As `cli`, twenty times as fast: in a process that runs all such commands in turn. `serve` gets its own process. */
  run(args: readonly string[], options: CommandOptions = {}): Promise<CommandResult> {
    if (args[0] === 'serve' && !options.startsNothing) return this.cli(args, options)
    return runInHost({ args, env: { ...this.#env, ...options.env }, cwd: this.dataDir, input: options.input ?? '' })
  }

  /** Runs a command with --json and returns what it printed; fails with its messages when it does not exit 0. */
  async json<T>(args: readonly string[], options: { input?: string } = {}): Promise<T> {
    const { exitCode, stdout, stderr } = await this.run([...args, '--json'], options)
    if (exitCode !== 0) throw new Error(`survey-auth ${args.join(' ')} exited ${exitCode}: ${stderr}`)
    return JSON.parse(stdout) as T
  }

  async #untilItAnswers(child: ChildProcess): Promise<void> {
    const deadline = Date.now() + START_TIMEOUT_MS
    while (Date.now() < deadline) {
      if (child.exitCode !== null) throw new Error(`the server ended with ${child.exitCode}: ${this.#output}`)
      const isUp = await send(this.url, '/api/', { headers: { connection: 'close' } }).then(
        (answer) => answer.status === 404,
        () => false,
      )
      if (isUp) return
      await new Promise((resolve) => setTimeout(resolve, 50))
    }
    throw new Error(`the server did not answer within ${START_TIMEOUT_MS} ms: ${this.#output}`)
  }

  #end(signal: 'SIGTERM' | 'SIGKILL'): Promise<number> {
    const child = this.#child
    if (child === undefined) return Promise.resolve(0)
    if (child.exitCode !== null || child.signalCode !== null) return Promise.resolve(child.exitCode ?? -1)
    return new Promise((resolve) => {
      child.once('close', (code) => resolve(code ?? -1))
      child.kill(signal)
    })
  }
}

let isBuilt = false

/** Otherwise the first start would wait for the compiler. */
function buildOnce(): void {
  if (!isBuilt) execFileSync(process.execPath, [BUILD], { stdio: 'inherit' })
  isBuilt = true
}

/** A new data directory and a free port, for tests that share them: the caller removes them. */
export async function openProcess(env: Environment = {}): Promise<ServiceProcess> {
  buildOnce()
  return new ServiceProcess(await mkdtemp(path.join(tmpdir(), 'survey-auth-process-')), await freePort(), env)
}

/** The same for one test: removed again, and the server ended, when it is over. */
export async function createProcess(env: Environment = {}): Promise<ServiceProcess> {
  const service = await openProcess(env)
  onTestFinished(() => service.remove())
  return service
}

/** The same, started. */
export async function startProcess(env: Environment = {}): Promise<ServiceProcess> {
  const service = await createProcess(env)
  await service.start()
  return service
}

/** The variables of our own environment that a command needs, without the settings under test. */
function inherited(): Record<string, string> {
  const { PATH = '', HOME = '' } = process.env
  return { PATH, HOME, NODE_ENV: 'production' }
}
