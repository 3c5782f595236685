// survey-auth config: every variable, its value and where that comes from.
import type { Command } from 'commander'
import { describeConfig, readConfig } from '../config.js'
import { checkNamedFiles } from '../named-files.js'
import { printRows } from '../output.js'
import { type Setting, settingGroups } from '../settings.js'
import { command, type Json } from './command.js'

export function addConfigCommand(program: Command): void {
  command(program, 'config', {
    about: 'all variables with their values; exit 78 when one is wrong',
    examples: ['config', 'config --json'],
    notes: variables(),
  }).action(showConfig)
}

async function showConfig({ json }: Json): Promise<void> {
  const rows = describeConfig(process.env)
  await checkNamedFiles(readConfig(process.env))
  printRows(rows, ['variable', 'value', 'source', 'about'], { json })
}

/** The table of variables as help shows it. */
function variables(): string {
  const groups = Object.entries(settingGroups).map(([title, group]) => {
    const lines = Object.values(group).map((row: Setting<unknown>) => {
      const file = row.isSecret ? ` (or ${row.variable}_FILE)` : ''
      return `  ${row.variable}=${fallbackText(row)}${file}\n      ${row.about}`
    })
    return `${title}:\n${lines.join('\n')}`
  })
  return `\nVariables and their defaults; one that is set to an empty string counts as unset.\n\n${groups.join('\n\n')}\n`
}

function fallbackText({ fallback, fallbackText: text }: Setting<unknown>): string {
  return text ?? (typeof fallback === 'string' ? fallback : '')
}
