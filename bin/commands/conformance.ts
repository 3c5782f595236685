// survey-auth conformance: does what others have implemented do what its contract says?
import { type Command, InvalidArgumentError } from 'commander'
import { type Address, parseAddress } from '../../services/rpc/address.js'
import type { KitOptions } from '../conformance/test-provider.js'
import { command, group } from './command.js'

const NOTES = `
Exit codes: 0 conformant, or what ran has passed, 1 not conformant, 2 it could not be tested. Nothing is
changed at the provider.
docs/provider-conformance.md lists the tests, each with its reason, and shows a file of fixtures.
An https:// address takes the certificates that RPC_TLS_CERT, RPC_TLS_KEY and RPC_TLS_CA name.
`

export function addConformanceCommands(program: Command): void {
  const conformance = group(program, 'conformance', {
    about: 'test what others have implemented',
    examples: ['conformance provider --url unix:/run/surveys.sock --fixtures fixtures.json'],
  })
  command(conformance, 'provider', {
    about: 'test a SurveyProvider (surveyauth.provider.v1): every numbered test ten times, and by 20 at once',
    examples: [
      'conformance provider --url unix:/run/surveys.sock --fixtures fixtures.json',
      'conformance provider --url https://surveys.internal:8443 --fixtures fixtures.json --report report.yaml --junit report.xml',
      'conformance provider --url http://127.0.0.1:50051 --fixtures fixtures.json --only SP-07,SP-12',
    ],
    notes: NOTES,
  })
    .requiredOption(
      '--url <address>',
      'where it listens: unix:/path, https://host:port or http://127.0.0.1:port',
      address,
    )
    .requiredOption('--fixtures <file>', 'JSON that says what it holds; - is standard input')
    .option('--profile <names>', 'core, answers or both; core and what the provider claims if not given', names)
    .option('--only <ids>', 'run these tests and no others', names)
    .option('--report <file>', 'also write a report in YAML')
    .option('--junit <file>', 'also write a report in the XML of JUnit')
    .action(async (options: KitOptions) => {
      const { testProvider } = await import('../conformance/test-provider.js') // loads gRPC and zod: only here
      await testProvider(options)
    })
}

function address(text: string): Address {
  try {
    return parseAddress(text)
  } catch (error) {
    throw new InvalidArgumentError(error instanceof Error ? error.message : 'is no address')
  }
}

function names(text: string): string[] {
  return text.split(',').map((name) => name.trim())
}
