// What a command asks the person at a terminal. Without one it asks nothing, so that scripts and cron run as they are written.
import { createInterface } from 'node:readline'
import { Writable } from 'node:stream'
import type { Command } from 'commander'
import { CommandError, EXIT } from '../exit.js'
import { harmlessLines } from '../output.js'
import type { Json } from './command.js'

/** What a command takes that cannot be undone. */
export interface Sure extends Json {
  readonly yes?: true
}

export function asksFirst(command: Command): Command {
  return command.option('--yes', 'do not ask first; without a terminal, nothing is asked')
}

/** Whether somebody sees a question and can answer it. */
export function isAtTerminal(): boolean {
  return process.stdin.isTTY === true && process.stderr.isTTY === true
}

/** @throws CommandError unless the person says yes */
export async function confirm(question: string, { yes }: Sure): Promise<void> {
  if (yes || !isAtTerminal()) return
  const [answer = ''] = await ask([`${question} This cannot be undone. Type yes to go on: `])
  if (answer.trim().toLowerCase() !== 'yes') throw new CommandError('nothing was done')
}

/** Typed unseen, twice. */
export async function askNewPassword(): Promise<string> {
  const [password = '', again] = await ask(['Password, 8 characters or more: ', 'The same again: '], { isUnseen: true })
  if (password === '') throw new CommandError('no password was typed', EXIT.usage)
  if (password !== again) throw new CommandError('the two passwords differ; nothing was done')
  return password
}

/** The lines that are typed; fewer than questions when the person ends the input. */
async function ask(questions: readonly string[], { isUnseen = false } = {}): Promise<string[]> {
  const output = new Writable({ write: (_chunk, _encoding, done) => done() })
  // Where it is the terminal, readline takes the echo from the system, and writes it to `output`.
  const terminal = createInterface({ input: process.stdin, output, terminal: isUnseen, historySize: 0 })
  terminal.on('SIGINT', () => {
    terminal.close()
    process.kill(process.pid, 'SIGINT')
  })
  const lines = terminal[Symbol.asyncIterator]()
  const answers: string[] = []
  for (const question of questions) {
    process.stderr.write(harmlessLines(question))
    const { value, done } = await lines.next()
    if (isUnseen || done) process.stderr.write('\n')
    if (done) break
    answers.push(value)
  }
  terminal.close()
  return answers
}
