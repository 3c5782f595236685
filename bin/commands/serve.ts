// survey-auth serve: runs the service, or one part of it, until it is told to stop.
import { Argument, type Command } from 'commander'
import { MODES, type Mode, usedAddresses } from '../compose/addresses.js'
import type { Running } from '../compose/running.js'
import { naming } from '../compose/stores.js'
import { type Config, readConfig } from '../config.js'
import { ANOTHER_PASSWORD, hasDemoAccount, whyNoDemo } from '../demo/known-account.js'
import { CommandError, EXIT, report } from '../exit.js'
import { checkNamedFiles } from '../named-files.js'
import { message } from '../output.js'
import { untilToldToStop } from '../signals.js'
import type { Log } from '../telemetry/log.js'
import { group } from './command.js'

/** How long after the time for an orderly stop the process is killed. */
const LATE_MS = 1_000

export function addServeCommand(program: Command): void {
  group(program, 'serve', {
    about: 'run the service, or one part of it, until SIGTERM or SIGINT',
    examples: ['serve', 'serve token', 'serve survey', 'serve gateway'],
    notes: '\nVariables: survey-auth config --help\n',
  })
    .addArgument(
      new Argument('[mode]', 'all: everything in this process; or one part of a separated service')
        .choices(MODES)
        .default('all'),
    )
    .action(serve)
}

async function serve(mode: Mode): Promise<void> {
  const config = readConfig(process.env, usedAddresses[mode])
  await checkNamedFiles(config, mode)
  if (mode === 'all' || mode === 'token') await refuseDemoAccount(config)
  const { start } = await import('../compose/start.js') // heavy: only here
  const told = untilToldToStop() // a signal during the start leads to an orderly stop after it
  const running = await start(mode, config).catch((error) => process.exit(report(error))) // whatever is still open
  message(`survey-auth ${mode === 'all' ? '' : `${mode} `}listening on ${placesOf(running)}`)
  const signal = await told
  running.log.note(`${signal}: stopping`)
  const mostMs = (config.drainSeconds + config.shutdownTimeoutSeconds) * 1000
  const byMs = performance.now() + mostMs
  endAfter(mostMs, running.log)
  try {
    await running.close()
    running.log.note('stopped')
  } catch (error) {
    process.exitCode = report(error)
  }
  await running.log.end(byMs)
  if (process.stderr.writableLength > 0) process.exit() // it would wait for a reader that hangs
}

/**
 * Ends the process even if a step of stopping waits for a disk or a database that hangs, or the exit for a thread. As after a
 * crash, nothing that was acknowledged is lost.
 */
function endAfter(ms: number, log: Log): void {
  const kill = () => process.kill(process.pid, 'SIGKILL')
  const warn = () => {
    log.failure('not stopped in time', new Error('a disk or a database hangs: the process is killed in a second'))
    setTimeout(kill, LATE_MS).unref() // by then the line is written
  }
  setTimeout(warn, ms).unref()
}

/** Refuses where others could reach that account. For a gateway, which has no accounts, its token service refuses. */
async function refuseDemoAccount({ publicUrl, tokenDatabase }: Config): Promise<void> {
  const why = whyNoDemo(process.env, publicUrl)
  if (!why || !(await naming('token', hasDemoAccount(tokenDatabase)))) return
  throw new CommandError(
    `this is a database of survey-auth demo, with an account whose password is public, and ${why}`,
    EXIT.configuration,
    `set another DATA_DIR; or, to keep it: ${ANOTHER_PASSWORD}`,
  )
}

function placesOf({ url, rpcAddress, adminUrl }: Running): string {
  const rpc = rpcAddress === undefined ? [] : [`${rpcAddress} (RPC)`]
  const admin = adminUrl === undefined ? 'health and metrics off' : `${adminUrl} (health and metrics)`
  return [...(url === '' ? [] : [url]), ...rpc, admin].join(', ')
}
