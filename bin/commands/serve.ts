// survey-auth serve: runs the service until it is told to stop.
import { Argument, type Command } from 'commander'
import { type Running, startAllInOne } from '../compose/all-in-one.js'
import { readConfig } from '../config.js'
import { message } from '../output.js'
import { untilToldToStop } from '../signals.js'
import { examples } from './options.js'

export function addServeCommand(program: Command): void {
  program
    .command('serve')
    .description('run the service until SIGTERM or SIGINT')
    .addArgument(
      new Argument('[mode]', 'which part').choices(['all']).default('all', 'all: everything in this process'),
    )
    .addHelpText('after', `${examples('serve', 'serve all')}\nVariables: survey-auth config --help\n`)
    .action(serve)
}

async function serve(): Promise<void> {
  const running = await startAllInOne(readConfig(process.env))
  message(listening(running))
  const signal = await untilToldToStop()
  running.log.note(`${signal}: stopping`)
  await running.close()
  running.log.note('stopped')
}

function listening({ url, adminUrl }: Running): string {
  const admin = adminUrl === undefined ? 'health and metrics off' : `health and metrics on ${adminUrl}`
  return `survey-auth: listening on ${url}, ${admin}`
}
