// survey-auth man: the manual page, made from the commands as they are declared, for roff.
import type { Command, Help } from 'commander'
import { packageVersion } from '../package-root.js'
import { group, helpOf } from './command.js'

export function addManCommand(program: Command): void {
  group(program, 'man', {
    about: 'the manual page, for roff',
    examples: ['man > /usr/local/share/man/man1/survey-auth.1'],
  }).action(() => void process.stdout.write(manualOf(program)))
}

export function manualOf(program: Command): string {
  const { notes = '', examples } = helpOf(program)
  return [
    `.TH SURVEY-AUTH 1 "" "survey-auth ${packageVersion()}" "User Commands"`,
    '.SH NAME',
    `${text(program.name())} \\- ${text(program.description())}`,
    '.SH SYNOPSIS',
    '.B survey\\-auth',
    '.I command',
    '[\\fIoptions\\fR] [\\fIarguments\\fR]',
    '.SH DESCRIPTION',
    ...asIs(notes),
    ...optionsOf(program),
    '.SH COMMANDS',
    ...program.commands.flatMap((command) => sectionsOf(command, command.name())),
    '.SH ENVIRONMENT',
    'All variables are under \\fBconfig\\fR above, and in the output of the command.',
    '.SH EXAMPLES',
    ...examplesOf(examples),
    '',
  ].join('\n')
}

/** Of a command; of a group, its commands. */
function sectionsOf(command: Command, words: string): string[] {
  if (command.commands.length > 0) {
    return command.commands.flatMap((child) => sectionsOf(child, `${words} ${child.name()}`))
  }
  const { about, notes = '', examples } = helpOf(command)
  return [
    `.SS ${text(`${words} ${command.usage()}`)}`,
    text(`${about.charAt(0).toUpperCase()}${about.slice(1)}.`),
    ...argumentsOf(command),
    ...optionsOf(command),
    ...(notes === '' ? [] : ['.PP', ...asIs(notes)]),
    '.PP',
    ...examplesOf(examples),
  ]
}

function argumentsOf(command: Command): string[] {
  const help = command.createHelp()
  return help
    .visibleArguments(command)
    .flatMap((argument) => item(help.argumentTerm(argument), help.argumentDescription(argument)))
}

/** --help is the same everywhere, and said once. */
function optionsOf(command: Command): string[] {
  const help: Help = command.createHelp()
  return help
    .visibleOptions(command)
    .filter(({ long }) => long !== '--help' || command.parent === null)
    .flatMap((option) => item(help.optionTerm(option), help.optionDescription(option)))
}

const item = (term: string, description: string) => ['.TP', `\\fB${text(term)}\\fR`, text(description)]

/** Lines that keep their ends. */
function asIs(lines: string): string[] {
  return ['.nf', ...lines.trim().split('\n').map(text), '.fi']
}

function examplesOf(examples: readonly string[]): string[] {
  return ['.RS 4', '.nf', ...examples.map((line) => text(`survey-auth ${line}`)), '.fi', '.RE']
}

/** No character of it means something to roff; a hyphen can be copied. */
function text(line: string): string {
  return line.replaceAll('\\', '\\e').replaceAll('-', '\\-').replace(/^[.']/, '\\&$&')
}
