// Runs commands in a process that has loaded their modules once; see commands-in-turn.js.
import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'

export interface CommandResult {
  readonly exitCode: number
  readonly stdout: string
  readonly stderr: string
}

export interface CommandLine {
  readonly args: readonly string[]
  readonly env: Readonly<Record<string, string | undefined>>
  readonly cwd: string
  readonly input: string | Uint8Array
}

const HOST = fileURLToPath(new URL('./commands-in-turn.js', import.meta.url))
const END = '\0the command has ended\0'
/** Less than a test has: a command that hangs costs its own test alone. */
const ENDS_WITHIN_MS = 50_000

interface Host {
  readonly child: ChildProcess
  readonly ended: Promise<never>
}

/** One for all test files of this worker; it ends with the worker. */
let host: Host | undefined
let last: Promise<unknown> = Promise.resolve()

/** Commands run one after the other. @throws Error when a command does not end, or would have kept its process from ending. */
export function runInHost(command: CommandLine): Promise<CommandResult> {
  const result = last.then(() => run(command))
  last = result.catch(() => undefined)
  return result
}

async function run({ args, env, cwd, input }: CommandLine): Promise<CommandResult> {
  host ??= start()
  const { child, ended } = host
  const outputs = Promise.all([child.stdout, child.stderr].map((stream) => untilEnd(stream as NodeJS.ReadableStream)))
  const told = once(child, 'message') as Promise<[{ exitCode: number; left: readonly string[] }]>
  child.send({ args, env, cwd, input: Buffer.from(input).toString('base64'), end: END })
  const timer = setTimeout(() => child.kill('SIGKILL'), ENDS_WITHIN_MS)
  const done = Promise.race([Promise.all([outputs, told]), ended]).finally(() => clearTimeout(timer))
  const [[stdout = '', stderr = ''], [{ exitCode, left }]] = await done
  if (left.length > 0) throw new Error(`survey-auth ${args.join(' ')} does not end: ${left.join(', ')}`)
  return { exitCode, stdout, stderr }
}

function start(): Host {
  const child = fork(HOST, { stdio: ['ignore', 'pipe', 'pipe', 'ipc'], execArgv: [] })
  const ended = once(child, 'exit').then(() => {
    host = undefined
    throw new Error('a command ended the process in which commands are run, or was ended with it because it hung')
  })
  ended.catch(() => undefined)
  for (const handle of [child, child.channel, child.stdout, child.stderr]) (handle as { unref(): void } | null)?.unref()
  return { child, ended }
}

/** What a command writes behind its end, too late, is not lost: it is in its output, or in the next one's. */
function untilEnd(stream: NodeJS.ReadableStream): Promise<string> {
  return new Promise((resolve) => {
    let chunks = Buffer.alloc(0)
    const onData = (chunk: Buffer) => {
      chunks = Buffer.concat([chunks, chunk])
      if (!chunks.includes(END, Math.max(0, chunks.length - chunk.length - END.length))) return
      stream.off('data', onData)
      resolve(chunks.toString().replace(END, ''))
    }
    stream.on('data', onData)
  })
}
