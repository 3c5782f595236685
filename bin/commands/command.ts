// How commands are declared: what all of them have in common is added here.
import type { Command } from 'commander'

/** What every command that prints data takes. */
export interface Json {
  readonly json?: true
}

interface Help {
  readonly about: string
  /** Command lines without `survey-auth`; a test parses them. */
  readonly examples: readonly string[]
  /** Between the options and the examples. */
  readonly notes?: string
}

/** Words that only have commands below them. */
export function group(program: Command, name: string, help: Help): Command {
  return program.command(name).description(help.about).addHelpText('after', helpAfter(help))
}

/** A command with --json; `usage` is its name, then its arguments: `show <appid>`. */
export function command(parent: Command, usage: string, help: Help): Command {
  return group(parent, usage, help).option('--json', 'print JSON instead of a table')
}

export function helpAfter({ examples, notes = '' }: Omit<Help, 'about'>): string {
  return `${notes}\nExamples:\n${examples.map((line) => `  $ survey-auth ${line}`).join('\n')}\n`
}
