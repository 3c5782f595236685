// survey-auth doctor: is everything as it should be? Changes nothing.
import type { Command } from 'commander'
import { type Config, RPC_ADDRESSES, readConfig } from '../config.js'
import { checks, inOneLine, type Verdict } from '../doctor/checks.js'
import { EXIT } from '../exit.js'
import { checkNamedFiles } from '../named-files.js'
import { message, printRows } from '../output.js'
import { command, type Json } from './command.js'

export function addDoctorCommand(program: Command): void {
  command(program, 'doctor', {
    about:
      'check configuration, files, databases, disk, clock and addresses, and whether the server is ready; exit 1 when something is wrong',
    examples: ['doctor', 'doctor --json', 'doctor --online'],
  })
    .option('--online', 'also ask each OpenID Provider; nothing else goes beyond this deployment')
    .action(doctor)
}

type Finding = Verdict & { readonly check: string }

async function doctor({ json, online }: Json & { readonly online?: true }): Promise<void> {
  const findings = await examine(online === true)
  printRows(findings, ['check', 'state', 'detail'], { json })
  const wrong = findings.filter(({ state }) => state === 'wrong').length
  if (wrong === 0) return
  message(`${wrong} ${wrong === 1 ? 'check' : 'checks'} found something wrong`)
  process.exitCode = EXIT.failure
}

async function examine(isOnline: boolean): Promise<Finding[]> {
  let config: Config
  try {
    config = readConfig(process.env, RPC_ADDRESSES)
    await checkNamedFiles(config)
  } catch (error) {
    const detail = error instanceof Error ? inOneLine(error.message) : 'unreadable'
    return [{ check: 'configuration', state: 'wrong', detail }]
  }
  const findings: Finding[] = [{ check: 'configuration', state: 'ok', detail: 'every variable is valid' }]
  for (const [check, run] of Object.entries(checks)) {
    const verdict = await run(config)
    if (verdict) findings.push({ check, ...verdict })
  }
  return isOnline ? [...findings, ...(await examineProviders(config))] : findings
}

async function examineProviders({ oidcProvidersFile, publicUrl }: Config): Promise<Finding[]> {
  const { readOidcProviders } = await import('../oidc-providers.js') // heavy, as is the next one: only here
  const { checkProvider } = await import('../doctor/provider.js')
  const providers = readOidcProviders(oidcProvidersFile)
  return Promise.all(
    providers.map(async (settings) => ({
      check: `provider ${settings.id}`,
      ...(await checkProvider(settings, publicUrl.origin)),
    })),
  )
}
