// survey-auth completion: what a shell needs to complete command lines, made from the commands as they are declared.
import { Argument, type Command, type Option } from 'commander'
import { group } from './command.js'

const NOTES = `
bash: add to ~/.bashrc      source <(survey-auth completion bash)
zsh:  add to ~/.zshrc       source <(survey-auth completion zsh)    after compinit
fish: once                  survey-auth completion fish > ~/.config/fish/completions/survey-auth.fish
`

export function addCompletionCommand(program: Command): void {
  group(program, 'completion', {
    about: 'a script that completes commands and options, for a shell',
    examples: ['completion bash > /usr/share/bash-completion/completions/survey-auth'],
    notes: NOTES,
  })
    .addArgument(new Argument('<shell>', 'the shell').choices(Object.keys(SCRIPTS)))
    .action((shell: keyof typeof SCRIPTS) => void process.stdout.write(completionFor(shell, program)))
}

/** Where a command line stands: behind the words of a command or a group. */
interface Place {
  /** The words, each behind a slash: `/app/create`; empty for none. */
  readonly at: string
  readonly words: readonly Word[]
  readonly options: readonly Choice[]
}

interface Word {
  readonly word: string
  readonly about: string
}

/** An option: its flags, and what may follow. */
interface Choice {
  readonly flags: readonly string[]
  readonly about: string
  readonly takesValue: boolean
  /** Empty where the value is not one of a few. */
  readonly values: readonly string[]
}

type Script = (places: readonly Place[]) => string

export function completionFor(shell: keyof typeof SCRIPTS, program: Command): string {
  return SCRIPTS[shell](placesIn(program))
}

function placesIn(command: Command, at = ''): Place[] {
  const help = command.createHelp()
  const commands = help.visibleCommands(command)
  const values = command.registeredArguments.flatMap(({ argChoices = [] }) => argChoices)
  const place: Place = {
    at,
    words: [
      ...commands.map((child) => ({ word: child.name(), about: child.description() })),
      ...values.map((word) => ({ word, about: '' })),
    ],
    options: help.visibleOptions(command).map(choiceOf),
  }
  return [place, ...command.commands.flatMap((child) => placesIn(child, `${at}/${child.name()}`))]
}

function choiceOf({ short, long, description, required, optional, argChoices = [] }: Option): Choice {
  const flags = [long, short].filter((flag) => flag !== undefined)
  return { flags, about: description, takesValue: required || optional, values: argChoices }
}

/** Quoted for any of the three shells: none of their texts has a backslash. */
function quoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`
}

const wordsOf = ({ words, options }: Place) => [
  ...words.map(({ word }) => word),
  ...options.flatMap(({ flags }) => flags),
]

/** `/app/create --logo`: behind such an option comes its value. */
const behind = (at: string, flags: readonly string[]) => flags.map((flag) => quoted(`${at} ${flag}`))

/** Options that a value follows: one of a few, or any other. */
function withValue(places: readonly Place[]) {
  const all = places.flatMap(({ at, options }) =>
    options.filter(({ takesValue }) => takesValue).map((option) => ({ ...option, at: behind(at, option.flags) })),
  )
  return {
    values: all.filter(({ values }) => values.length > 0),
    others: all.filter(({ values }) => values.length === 0),
  }
}

const HEAD = '# Completes survey-auth. Written by: survey-auth completion'

function bash(places: readonly Place[]): string {
  const { values, others } = withValue(places)
  return `${HEAD} bash
_survey_auth() {
  local current=\${COMP_WORDS[COMP_CWORD]} previous=\${COMP_WORDS[COMP_CWORD - 1]} at='' words='' word
  for word in "\${COMP_WORDS[@]:1:COMP_CWORD - 1}"; do
    case "$at/$word" in
      ${placesBelow(places).join(' | ')}) at="$at/$word" ;;
    esac
  done
  case "$at $previous" in
${values.map(({ at, values }) => `    ${at.join(' | ')}) words=${quoted(values.join(' '))} ;;`).join('\n')}
    ${others.flatMap(({ at }) => at).join(' | ')}) ;;
    *)
      case "$at" in
${places.map((place) => `        ${quoted(place.at)}) words=${quoted(wordsOf(place).join(' '))} ;;`).join('\n')}
      esac
      ;;
  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}
complete -o default -F _survey_auth survey-auth survey-auth.js
`
}

function zsh(places: readonly Place[]): string {
  const described = ({ words, options }: Place) => [
    ...words.map(({ word, about }) => quoted(`${word}:${about}`)),
    ...options.flatMap(({ flags, about }) => flags.map((flag) => quoted(`${flag}:${about}`))),
  ]
  const { values, others } = withValue(places)
  return `#compdef survey-auth survey-auth.js
${HEAD} zsh
_survey-auth() {
  local at='' word
  local -a found
  for word in \${words[2,CURRENT-1]}; do
    case "$at/$word" in
      ${placesBelow(places).join(' | ')}) at="$at/$word" ;;
    esac
  done
  case "$at \${words[CURRENT-1]}" in
${values.map(({ at, values }) => `    ${at.join(' | ')}) found=(${values.join(' ')}) ;;`).join('\n')}
    ${others.flatMap(({ at }) => at).join(' | ')}) _files; return ;;
    *)
      case "$at" in
${places.map((place) => `        ${quoted(place.at)}) found=(${described(place).join(' ')}) ;;`).join('\n')}
      esac
      ;;
  esac
  _describe survey-auth found || _files
}
if [[ $funcstack[1] == _survey-auth ]]; then _survey-auth "$@"; else compdef _survey-auth survey-auth survey-auth.js; fi
`
}

function fish(places: readonly Place[]): string {
  const lines = places.flatMap(({ at, words, options }) => {
    const complete = `complete -c survey-auth -n ${quoted(`__survey_auth_at "${at}"`)}`
    return [
      ...words.map(({ word, about }) => `${complete} -f -a ${word} -d ${quoted(about)}`),
      ...options.map(({ flags, about, takesValue, values }) => {
        const names = flags.map((flag) => (flag.startsWith('--') ? `-l ${flag.slice(2)}` : `-s ${flag.slice(1)}`))
        const value = values.length > 0 ? ` -x -a ${quoted(values.join(' '))}` : takesValue ? ' -r' : ''
        return `${complete} ${names.join(' ')}${value} -d ${quoted(about)}`
      }),
    ]
  })
  return `${HEAD} fish
function __survey_auth_at
    set -l at ''
    for word in (commandline -opc)[2..-1]
        switch "$at/$word"
            case ${placesBelow(places).join(' ')}
                set at "$at/$word"
        end
    end
    test "$at" = "$argv[1]"
end
${lines.join('\n')}
`
}

const placesBelow = (places: readonly Place[]) => places.flatMap(({ at }) => (at === '' ? [] : [at]))

const SCRIPTS = { bash, zsh, fish } satisfies Record<string, Script>
