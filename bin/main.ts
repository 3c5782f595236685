// The command line. bin/ is where everything meets: the only place that knows both gateway/ and services/, reads the
// environment, and passes in the real clock and randomness. Nothing imports it.
import { readFileSync } from 'node:fs'
import { Command, type Option } from 'commander'
import { parseAddress } from '../services/rpc/address.js'
import { addAppCommands } from './commands/app.js'
import { addAuditCommands } from './commands/audit.js'
import { addBackupCommand } from './commands/backup.js'
import { addConfigCommand } from './commands/config.js'
import { addDemoCommand } from './commands/demo.js'
import { addDescriptorCommand } from './commands/descriptor.js'
import { addDoctorCommand } from './commands/doctor.js'
import { addGrantCommands } from './commands/grant.js'
import { addMigrateCommand } from './commands/migrate.js'
import { examples, repeatable } from './commands/options.js'
import { addServeCommand } from './commands/serve.js'
import { addStoreCommands } from './commands/store.js'
import { addSurveyCommands } from './commands/survey.js'
import { addUserCommands } from './commands/user.js'
import { errorCode, isOfSystem } from './error-code.js'
import { CommandError, EXIT, report } from './exit.js'
import { harmlessLines } from './output.js'
import { packageFile } from './package-root.js'

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

/** All commands, not yet run. */
export function createProgram(): Command {
  const program = new Command('survey-auth')
    .description('web authorization for survey data')
    .version(version(), '--version', 'print the version')
    .helpOption('-h, --help', 'show help')
    .option('--url <address>', 'server to work on, for example https://token.example:7443; else one found in DATA_DIR')
    .hook('preAction', (program, command) => {
      refuseEmptyValues(program)
      refuseEmptyValues(command)
      requireWorkingDirectory()
      useServer(program, command)
    })
    .exitOverride()
    .configureHelp({ showGlobalOptions: false })
    .addHelpText(
      'after',
      `${examples('demo', 'serve', 'app create --help', 'doctor')}\nData goes to stdout, messages to stderr. Exit codes: 0 ok, 1 failure, 2 usage, 69 unavailable, 78 configuration.\n`,
    )
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
  addConfigCommand(program)
  addDescriptorCommand(program)
  addHelpCommand(program)
  for (const command of allFrom(program)) {
    command.showHelpAfterError(`(${wordsOf(command)} --help shows what there is)`) // of the command that was meant
    refuseSecondValues(command)
    nameAllMissing(command)
  }
  return program
}

/** Commander's own help command takes one word, and answers an unknown one with the help of the whole program. */
function addHelpCommand(program: Command): void {
  program
    .command('help')
    .argument('[command...]', 'its words')
    .description('show help for a command')
    .addHelpText('after', examples('help audit list'))
    .action((words: readonly string[], _options: unknown, help: Command) => {
      let meant = program
      for (const word of words) {
        const child = meant.commands.find((command) => command.name() === word)
        meant = child ?? help.error(`error: unknown command '${words.join(' ')}'`)
      }
      meant.help()
    })
}

function allFrom(command: Command): Command[] {
  return [command, ...command.commands.flatMap(allFrom)]
}

/** Of two values of an option, the first would be lost without a word. */
function refuseSecondValues(command: Command): void {
  const given = new Map<string, Option>() // an option and its negation have one attribute
  for (const option of command.options) {
    if (option.variadic || option.parseArg === repeatable) continue
    command.on(`option:${option.name()}`, () => {
      const earlier = given.get(option.attributeName())
      if (earlier === option && option.required) command.error(`error: option '${option.flags}' is given twice`)
      if (earlier && earlier !== option)
        command.error(`error: option '${option.flags}' cannot be used with option '${earlier.flags}'`)
      given.set(option.attributeName(), option)
    })
  }
}

/** Of what is required and not given, Commander names only the first. */
function nameAllMissing(command: Command): void {
  command.configureOutput({
    outputError: (text, write) => {
      const missing = /^error: (required option|missing required argument) /.test(text) ? missingOf(command) : []
      write(missing.length > 1 ? `error: missing: ${missing.join(', ')}\n` : harmlessLines(text))
    },
  })
}

function missingOf(command: Command): string[] {
  const given = command.args.filter((word) => !word.startsWith('-')) // an unknown option is none
  const words = command.registeredArguments.filter((word, at) => word.required && given[at] === undefined)
  const options = command.options.filter(
    (option) => option.mandatory && command.getOptionValue(option.attributeName()) === undefined,
  )
  return [...words.map((word) => `argument '${word.name()}'`), ...options.map(({ flags }) => `option '${flags}'`)]
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
    const why = errorCode(error, '') === 'ENOENT' ? 'it has been deleted' : errorCode(error, 'unknown')
    const hint = 'go to another one: cd /'
    throw new CommandError(`the working directory cannot be used: ${why}`, EXIT.unavailable, hint)
  }
}

/** Commands that work on a server; the others work on this machine only. */
const OF_A_SERVER = /^survey-auth (app|user|survey|grant|audit) /

/** `--url` is the token service; it is the survey service as well unless that is configured. */
function useServer(program: Command, command: Command): void {
  const { url } = program.opts<{ url?: string }>()
  if (url === undefined) return
  const words = wordsOf(command)
  if (!OF_A_SERVER.test(words)) {
    command.error(`error: option '--url <address>' has no effect on ${words}: it works on this machine alone`)
  }
  try {
    parseAddress(url)
  } catch (error) {
    program.error(`error: option '--url <address>' ${error instanceof Error ? error.message : 'is invalid'}`)
  }
  process.env.TOKEN_SERVICE_URL = url
  process.env.SURVEY_SERVICE_URL ||= url // an empty value counts as not set
}

/** The words one types for a command. */
function wordsOf(command: Command): string {
  return command.parent ? `${wordsOf(command.parent)} ${command.name()}` : command.name()
}

function version(): string {
  const { version } = JSON.parse(readFileSync(packageFile('package.json'), 'utf8')) as { version: string }
  return version
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
