// How a command ends: exit codes, and what is shown to the person who must act.
import { Code, ConnectError } from '@connectrpc/connect'
import { CommanderError } from 'commander'
import { reasonOf } from '../services/rpc/service-error.js'
import { DatabaseRefused } from '../services/storage/database-refused.js'
import { StoreUnavailable } from '../services/storage/store-unavailable.js'
import { ConfigError } from './config.js'
import { errorCode } from './error-code.js'
import { message } from './output.js'

/** From sysexits(3) where it has a code for it; `partial`: the rest was done. */
export const EXIT = { ok: 0, failure: 1, usage: 2, partial: 3, unavailable: 69, configuration: 78 } as const
export type ExitCode = (typeof EXIT)[keyof typeof EXIT]

/** A command cannot do what it was asked; the message says what to do instead. */
export class CommandError extends Error {
  override readonly name = 'CommandError'

  constructor(
    text: string,
    readonly exitCode: ExitCode = EXIT.failure,
    /** What to try next; a command or a variable. */
    readonly hint?: string,
  ) {
    super(text)
  }
}

/** Writes what went wrong to stderr. @returns the exit code. */
export function report(error: unknown): ExitCode {
  if (error instanceof CommanderError) return commanderExit(error)
  if (error instanceof ConfigError) {
    for (const { variable, message: text } of error.problems) message(`survey-auth: ${variable} ${text}`)
    message('what each variable means: survey-auth config --help')
    return EXIT.configuration
  }
  if (error instanceof CommandError) {
    message([`survey-auth: ${error.message}`, error.hint].filter(Boolean).join('\n')) // one write: a log line comes before or after
    return error.exitCode
  }
  if (error instanceof ConnectError) {
    message(`survey-auth: ${error.rawMessage}`)
    const hint = hintOn(error)
    if (hint) message(hint)
    return isUnanswered(error) ? EXIT.unavailable : EXIT.failure
  }
  if (error instanceof StoreUnavailable) {
    message(`survey-auth: ${error.message}: ${reasonOf(error)}`)
    return EXIT.unavailable
  }
  if (error instanceof DatabaseRefused) {
    message(`survey-auth: ${error.message}`)
    return EXIT.configuration
  }
  if (errorCode(error, '') === 'EMFILE') {
    message('survey-auth: file descriptors ran out (EMFILE)\nraise the limit: ulimit -n')
    return EXIT.unavailable
  }
  const text = error instanceof Error ? (error.stack ?? error.message) : 'a value that is not an Error was thrown'
  message(`survey-auth: this should not happen: ${text}`)
  return EXIT.failure
}

/** Whether a call got no answer, so that nobody knows whether it has been carried out. */
export function isUnanswered(error: unknown): error is ConnectError {
  return error instanceof ConnectError && [Code.Unavailable, Code.DeadlineExceeded, Code.Canceled].includes(error.code)
}

/** Where to look for what is not there. */
export const WHERE_TO_LOOK = {
  app: 'see them with: survey-auth app list',
  secret: 'see the ids with: survey-auth app secret list APPID',
  user: 'see them with: survey-auth user list; a deleted one goes by the user_id in: survey-auth audit list',
  grant: 'see them with: survey-auth grant list',
  survey: 'see them with: survey-auth survey list',
} as const

function hintOn({ code, rawMessage }: ConnectError): string | undefined {
  if (code === Code.Unimplemented)
    return 'TOKEN_SERVICE_URL and SURVEY_SERVICE_URL name the services; a service of an older version does not have every RPC'
  if (code === Code.PermissionDenied)
    return 'commands need the role operator: RPC_CALLERS of that service must give it to a name in the certificate, RPC_TLS_CERT'
  const [, what = ''] = (code === Code.NotFound && /^there is no (?:such )?([a-z]+)/.exec(rawMessage)) || []
  return (WHERE_TO_LOOK as Readonly<Record<string, string>>)[what]
}

/** Commander has written its message already; 0 is help or the version that was asked for. */
function commanderExit(error: CommanderError): ExitCode {
  return error.exitCode === 0 ? EXIT.ok : EXIT.usage
}
