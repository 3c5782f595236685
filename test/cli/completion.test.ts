// Completion in the shells themselves, and the manual page. A shell that is not installed is left out, as is a reader of roff.
import { execFileSync, spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import type { Command } from 'commander'
import { afterAll, describe, expect, test } from 'vitest'
import { completionFor } from '../../bin/commands/completion.js'
import { manualOf } from '../../bin/commands/man.js'
import { createProgram } from '../../bin/main.js'
import { createProcess } from '../harness/process.js'

const folder = mkdtempSync(path.join(tmpdir(), 'survey-auth-completion-'))
afterAll(() => rmSync(folder, { recursive: true }))

const isThere = (program: string, ...args: string[]) => spawnSync(program, args, { stdio: 'ignore' }).status === 0

/** Shows what is offered for the last of the words, a line each; the words come as arguments. */
const shells = {
  bash: {
    has: isThere('bash', '--version'),
    shows: (script: string, words: readonly string[]) =>
      execFileSync('bash', ['--norc', '-c', BASH, script, 'survey-auth', ...words], { encoding: 'utf8' }),
  },
  zsh: {
    has: isThere('zsh', '--version'),
    shows: (script: string, words: readonly string[]) =>
      execFileSync('zsh', ['-f', '-c', ZSH, script, 'survey-auth', ...words], { encoding: 'utf8' }),
  },
  fish: {
    has: isThere('fish', '--version'),
    shows: (script: string, words: readonly string[]) =>
      execFileSync('fish', ['--no-config', '-c', `source ${script}; complete -C "$argv"`, 'survey-auth', ...words], {
        encoding: 'utf8',
      }),
  },
} as const

const BASH = `
source "$0"
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_survey_auth
printf '%s\\n' "\${COMPREPLY[@]}"`

/** What its own completion system would show is beneath these three functions. */
const ZSH = `
compdef() { :; }
_files() { print a-file; }
_describe() { local one; for one in \${(P)2}; do [[ $one == $words[CURRENT]* ]] && print -r -- $one; done; return 0; }
source $0
words=("$@")
CURRENT=$#
_survey-auth`

/** Without what the shell says about each of them. */
const offered = (shown: string) =>
  shown
    .split('\n')
    .map((line) => line.replace(/[:\t].*$/, ''))
    .filter((word) => word !== '')
    .sort()

/** Every command and group, by its words. */
function commandsFrom(command: Command, words: readonly string[] = []): (readonly [readonly string[], Command])[] {
  return [[words, command], ...command.commands.flatMap((child) => commandsFrom(child, [...words, child.name()]))]
}

const program = createProgram()
const all = commandsFrom(program)

describe.each(Object.entries(shells))('completion in %s', (name, { has, shows }) => {
  const script = path.join(folder, `completion.${name}`)
  writeFileSync(script, completionFor(name as keyof typeof shells, program))
  const complete = (...words: readonly string[]) => offered(shows(script, words))

  test.skipIf(!has).each([
    [['ap'], ['app']],
    [['app', 'secret', ''], expect.arrayContaining(['add', 'list', 'revoke'])],
    [['app', 'secret', 'r'], ['revoke']],
    [['app', 'delete', '--y'], ['--yes']],
    [
      ['survey', 'list', '--owner', 'app', '--state', ''],
      ['collecting', 'draft', 'paused'],
    ],
    [['survey', 'list', '--state', 'd'], ['draft']],
    [['user', 'import', '--convert', 'k'], ['keycloak']],
    [['serve', 'g'], ['gateway']],
    [['completion', 'z'], ['zsh']],
    [['app', 'show', 'app', 'zz'], []],
  ])('%j', (words, expected) => {
    expect(complete(...words).filter((word) => word !== 'a-file')).toEqual(expected)
  })

  test.skipIf(!has)('offers all options of each command', { timeout: 60_000 }, () => {
    for (const [words, command] of all) {
      const options = command.options.flatMap(({ long }) => long ?? [])
      expect(complete(...words, '--'), words.join(' ')).toEqual(expect.arrayContaining([...options, '--help']))
    }
  })
})

describe('the manual page', () => {
  const page = manualOf(program)
  const file = path.join(folder, 'survey-auth.1')
  writeFileSync(file, page)

  test('has every command with its options', () => {
    const plain = page.replaceAll('\\-', '-')
    for (const [words, command] of all.filter(([, { commands }]) => commands.length === 0)) {
      const [, section = ''] = plain.split(`\n.SS ${words.join(' ')} ${command.usage()}\n`)
      const [own = ''] = section.split('\n.S')
      for (const { flags } of command.options) expect(own, words.join(' ')).toContain(`\\fB${flags}\\fR`)
      expect(own).toContain(`survey-auth ${words.join(' ')}`)
    }
  })

  test.skipIf(!isThere('groff', '--version'))('is read by groff without a warning', () => {
    const { status, stderr } = spawnSync('groff', ['-man', '-Kutf8', '-Tutf8', '-ww', '-z', file], { encoding: 'utf8' })
    expect({ status, stderr }).toEqual({ status: 0, stderr: '' })
  })

  test.skipIf(!isThere('sh', '-c', 'command -v mandoc'))('is read by mandoc without an error', () => {
    const { stdout } = spawnSync('mandoc', ['-T', 'lint', '-W', 'warning', file], { encoding: 'utf8' })
    expect(stdout.split('\n').filter((line) => !/missing date/.test(line) && line !== '')).toEqual([])
  })
})

test('both are printed by commands that need no configuration', async () => {
  const service = await createProcess({ PORT: 'wrong' })
  for (const words of ['completion bash', 'completion zsh', 'completion fish', 'man']) {
    const { exitCode, stdout, stderr } = await service.run(words.split(' '))
    expect({ exitCode, stderr }).toEqual({ exitCode: 0, stderr: '' })
    expect(stdout).toContain('survey-auth')
  }
})
