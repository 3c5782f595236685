// How commands are declared: what all of them have in common is added here.
import type { Command } from 'commander'

/** What every command that prints data takes. */
export interface Json {
  readonly json?: true
}

/** What the help of a command says, beside its options. */
export interface Help {
  readonly about: string
  /** Command lines without `survey-auth`; a test parses them. */
  readonly examples: readonly string[]
  /** Between the options and the examples. */
  readonly notes?: string
}

const helps = new WeakMap<Command, Help>()

export function helpOf(command: Command): Help {
  return helps.get(command) ?? { about: command.description(), examples: [] }
}

/** The same in its --help and in the manual page. */
export function describe(command: Command, help: Help): Command {
  helps.set(command, help)
  return command.description(help.about).addHelpText('after', helpAfter(help))
}

/** Words that only have commands below them. */
export function group(program: Command, name: string, help: Help): Command {
  return describe(program.command(name), help)
}

/** A command with --json; `usage` is its name, then its arguments: `show <appid>`. */
export function command(parent: Command, usage: string, help: Help): Command {
  return group(parent, usage, help).option('--json', 'print JSON instead of a table')
}

function helpAfter({ examples, notes = '' }: Help): string {
  return `${notes}\nExamples:\n${examples.map((line) => `  $ survey-auth ${line}`).join('\n')}\n`
}
