// The command line. bin/ is where everything meets: the only place that knows both gateway/ and services/, reads the
// environment, and passes in the real clock and randomness. Nothing imports it.
import { Command } from 'commander'
import { buildName } from './build-info.js'
import { addAppCommands } from './commands/app.js'
import { addAuditCommands } from './commands/audit.js'
import { addBackupCommand } from './commands/backup.js'
import { describe } from './commands/command.js'
import { addCompletionCommand } from './commands/completion.js'
import { addConfigCommand } from './commands/config.js'
import { addConformanceCommands } from './commands/conformance.js'
import { addDemoCommand } from './commands/demo.js'
import { addDoctorCommand } from './commands/doctor.js'
import { addGrantCommands } from './commands/grant.js'
import { addManCommand } from './commands/man.js'
import { addMigrateCommand } from './commands/migrate.js'
import { addServeCommand } from './commands/serve.js'
import { addStoreCommands } from './commands/store.js'
import { addSurveyCommands } from './commands/survey.js'
import { addUserCommands } from './commands/user.js'
import { errorCode, isOfSystem } from './error-code.js'
import { CommandError, EXIT, report } from './exit.js'
import { harmlessLines } from './output.js'

/** Runs one command line. Ends the process only on a defect; otherwise sets the exit code and lets it run out. */
export async function main(argv: string[]): Promise<void> {
  process.umask(0o077) // whatever a command writes is for its owner only
  process.stdout.on('error', endWhenNothingCanBeWritten)
  process.stderr.on('error', goOnUnheard)
  process.on('uncaughtException', endOnDefect)
  process.on('unhandledRejection', endOnDefect)
  try {
    await createProgram().parseAsync(argv)
  } catch (error) {
    process.exitCode = report(error)
  }
}

const EXIT_CODES = `
Data goes to stdout, messages to stderr. Exit codes: 0 ok, 1 failure, 2 usage, 3 some records
refused, 69 unavailable, 78 configuration.
`

/** All commands, not yet run. */
export function createProgram(): Command {
  const program = new Command('survey-auth')
    .version(buildName(), '--version', 'print the version, and the commit it was built from')
    .helpOption('-h, --help', 'show help')
    .hook('preAction', (_, command) => {
      requireWorkingDirectory()
      refuseEmptyValues(command)
    })
    .exitOverride()
    .showHelpAfterError('(--help shows what there is)')
    .configureOutput({ outputError: (text, write) => write(harmlessLines(text)) })
  describe(program, {
    about: 'web authorization for survey data',
    examples: ['demo', 'serve', 'app create --help', 'doctor'],
    notes: EXIT_CODES,
  })
  addServeCommand(program)
  addDemoCommand(program)
  addAppCommands(program)
  addUserCommands(program)
  addSurveyCommands(program)
  addGrantCommands(program)
  addAuditCommands(program)
  addMigrateCommand(program)
  addBackupCommand(program)
  addStoreCommands(program)
  addDoctorCommand(program)
  addConformanceCommands(program)
  addConfigCommand(program)
  addCompletionCommand(program)
  addManCommand(program)
  return program
}

/** An empty value is most often a shell variable that is not set; as a filter it would let everything through. */
function refuseEmptyValues(command: Command): void {
  for (const option of command.options) {
    const name = option.attributeName()
    if (command.getOptionValueSource(name) === 'cli' && [command.getOptionValue(name)].flat().includes('')) {
      command.error(`error: option '${option.flags}' must not be empty`)
    }
  }
  const empty = command.registeredArguments[command.args.indexOf('')]
  if (empty) command.error(`error: argument '${empty.name()}' must not be empty`)
}

/** Without one no path can be resolved. */
function requireWorkingDirectory(): void {
  try {
    process.cwd()
  } catch (error) {
    const text = `the working directory cannot be used (${errorCode(error, 'unknown')})`
    throw new CommandError(text, EXIT.unavailable, 'go to another one: cd /')
  }
}

/** `survey-auth audit list | head` is not a failure; a full disk is one, but not a defect. */
function endWhenNothingCanBeWritten(error: NodeJS.ErrnoException): never {
  if (error.code === 'EPIPE') process.exit() // with the exit code the command has set, if it has: `doctor | true` is 1
  throw isOfSystem(error) ? new CommandError(`the output cannot be written (${error.code})`) : error
}

/** Messages that cannot be written are no reason to leave the work undone; the exit code tells how it went. */
function goOnUnheard(error: Error): void {
  if (!isOfSystem(error)) throw error
}

function endOnDefect(error: unknown): void {
  report(error)
  process.exit(EXIT.failure)
}
