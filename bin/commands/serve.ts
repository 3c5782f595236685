// survey-auth serve: runs the service, or one part of it, until it is told to stop.
import { Argument, type Command } from 'commander'
import { MODES, type Mode } from '../compose/mode.js'
import type { Running } from '../compose/start.js'
import { readConfig } from '../config.js'
import { message } from '../output.js'
import { untilToldToStop } from '../signals.js'
import { examples } from './options.js'

export function addServeCommand(program: Command): void {
  program
    .command('serve')
    .description('run the service, or one part of it, until SIGTERM or SIGINT')
    .addArgument(
      new Argument('[mode]', 'all: everything in this process; or one part of a separated service')
        .choices(MODES)
        .default('all'),
    )
    .addHelpText(
      'after',
      `${examples('serve', 'serve token', 'serve survey', 'serve gateway')}\nVariables: survey-auth config --help\n`,
    )
    .action(serve)
}

async function serve(mode: Mode): Promise<void> {
  const config = readConfig(process.env)
  const { start } = await import('../compose/start.js') // heavy: only here
  const running = await start(mode, config)
  message(`survey-auth ${mode === 'all' ? '' : `${mode} `}listening on ${placesOf(running)}`)
  const signal = await untilToldToStop()
  running.log.note(`${signal}: stopping`)
  await running.close()
  running.log.note('stopped')
}

function placesOf({ url, rpcAddresses, adminUrl }: Running): string {
  const rpc = rpcAddresses.map((address) => `${address} (RPC)`)
  const admin = adminUrl === undefined ? 'health and metrics off' : `${adminUrl} (health and metrics)`
  return [...(url === '' ? [] : [url]), ...rpc, admin].join(', ')
}
