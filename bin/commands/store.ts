// survey-auth store: moves the databases from one machine's SQLite files to PostgreSQL.
import { readFileSync } from 'node:fs'
import path from 'node:path'
import type { Command } from 'commander'
import { CopyRefused } from '../../services/storage/copy/copy-refused.js'
import type { Job, TableReport } from '../../services/storage/copy/copy-stores.js'
import { applicationIdOf } from '../../services/storage/copy/source.js'
import { parseAddress } from '../../services/storage/postgres/address.js'
import { surveyCopy, tokenCopy } from '../compose/copied-schemas.js'
import { isThere } from '../compose/database-file.js'
import { type Config, maskPassword, readConfig } from '../config.js'
import { unreadable } from '../error-code.js'
import { CommandError, EXIT } from '../exit.js'
import { message, printRows } from '../output.js'
import type { Database } from '../settings.js'
import { examples, type Json, jsonOption } from './options.js'

interface CopyOptions extends Json {
  readonly from?: string
  readonly to?: string
  readonly toFile?: string
  readonly force?: true
}

const PROGRESS_MS = 5_000

const NOTES = `
Everything in token.db and survey.db is read at one moment and written in one transaction for each; every
value is compared with what PostgreSQL stored, and all is committed only if all are equal. The files are never changed, and a database that
has rows is never written to. The service must be stopped.

Without --to and --to-file each file goes where the service will look for it: set TOKEN_DATABASE_URL and
SURVEY_DATABASE_URL (or …_FILE) to postgres:// addresses first. docs/operators/data.md has the move step by step.
`

export function addStoreCommands(program: Command): void {
  const store = program
    .command('store')
    .description('moving the databases')
    .addHelpText('after', examples('store copy --help'))

  store
    .command('copy')
    .description('copy everything from SQLite to an empty PostgreSQL database, and verify it')
    .option('--from <file>', 'one SQLite file, token or survey; else both of DATA_DIR')
    .option('--to <url>', 'postgres://user@host:5432/database; a password in it would show in the list of processes')
    .option('--to-file <file>', 'a file that holds the address')
    .option('--force', 'copy files that are in use: what is written from then on is lost; for a rehearsal')
    .addOption(jsonOption())
    .addHelpText(
      'after',
      NOTES +
        examples(
          'store copy',
          'store copy --to-file /etc/survey-auth/database-url',
          'store copy --from /var/lib/survey-auth/survey.db --to postgres://survey_auth@db.internal/survey_auth',
        ),
    )
    .action(copy)
}

async function copy(options: CopyOptions): Promise<void> {
  const { copyStores } = await import('../../services/storage/copy/copy-stores.js') // loads all of pg: only here
  const config = readConfig(process.env)
  const to = targetOf(options)
  try {
    const jobs = options.from === undefined ? jobsOfDataDir(config, to) : [jobOf(options.from, config, to)]
    print(await copyStores(jobs, { isForced: options.force === true, onProgress: progress() }), options.json)
  } catch (error) {
    if (error instanceof CopyRefused) throw new CommandError(error.message, EXIT.failure, error.hint)
    throw error
  }
}

/** How an address begins that was meant for --to. A message with it would show its password. */
const NO_FILE = /^\s*postgres(ql)?:|:\/\//i

function jobOf(from: string, config: Config, to: string | undefined): Job {
  const name = from.replace(/^sqlite:/, '')
  if (NO_FILE.test(name)) {
    throw new CommandError('--from must be a SQLite file, not an address', EXIT.usage, 'give an address as --to')
  }
  const file = path.resolve(name)
  const applicationId = applicationIdOf(file)
  const schema = [tokenCopy, surveyCopy].find(({ sqlite }) => sqlite.applicationId === applicationId)
  if (!schema) throw new CommandError(`${file} is not a database of this program`)
  const url = to ?? urlOf(schema === tokenCopy ? config.tokenDatabase : config.surveyDatabase)
  if (url === undefined) throw noTarget()
  return { file, schema, url }
}

/**
 * The files in DATA_DIR that have a target. Surveys first: should the files be in use, the owner of each survey is then in
 * the copy of the users, which is made later.
 */
function jobsOfDataDir(config: Config, to: string | undefined): Job[] {
  const candidates = [
    { file: 'survey.db', schema: surveyCopy, url: to ?? urlOf(config.surveyDatabase) },
    { file: 'token.db', schema: tokenCopy, url: to ?? urlOf(config.tokenDatabase) },
  ]
  if (candidates.every(({ url }) => url === undefined)) throw noTarget()
  const jobs = candidates.flatMap(({ file: name, schema, url }) => {
    const file = path.join(config.dataDir, name)
    if (url !== undefined && isThere(file)) return [{ file, schema, url }]
    const variable = `${schema.sqlite.name.toUpperCase()}_DATABASE_URL`
    message(
      `${name} is not copied: ${url === undefined ? `${variable} is not a postgres:// address` : 'it does not exist'}`,
    )
    return []
  })
  if (jobs.length > 0) return jobs
  throw new CommandError(`there is nothing to copy in ${config.dataDir}`, EXIT.failure, 'set DATA_DIR, or give --from')
}

function urlOf(database: Database): string | undefined {
  return database.kind === 'postgres' ? database.url : undefined
}

function noTarget(): CommandError {
  const hint = 'set TOKEN_DATABASE_URL and SURVEY_DATABASE_URL to postgres:// addresses, or give --to or --to-file'
  return new CommandError('there is no PostgreSQL database to copy to', EXIT.usage, hint)
}

/** The address on the command line, if there is one. */
function targetOf({ to, toFile }: CopyOptions): string | undefined {
  if (to !== undefined && toFile !== undefined) throw new CommandError('give --to or --to-file, not both', EXIT.usage)
  const url = toFile === undefined ? to : contentOf(toFile)
  if (url === undefined) return undefined
  try {
    parseAddress(url)
  } catch (error) {
    throw new CommandError(error instanceof Error ? error.message : 'the address is invalid', EXIT.usage)
  }
  if (to !== undefined && maskPassword(to) !== to) {
    message('other users of this machine can see the password in --to; --to-file keeps it from them')
  }
  return url
}

function contentOf(file: string): string {
  try {
    return readFileSync(file, 'utf8').trim()
  } catch (error) {
    throw new CommandError(unreadable(file, error))
  }
}

/** Reports how far the copy is, every few seconds. */
function progress(): (table: string, rows: number, total: number) => void {
  let saidAt = performance.now()
  return (table, rows, total) => {
    if (performance.now() - saidAt < PROGRESS_MS) return
    saidAt = performance.now()
    message(`${table}: ${rows} of ${total} rows`)
  }
}

/** @throws CommandError when a table differs. */
function print(reports: readonly TableReport[], json: true | undefined): void {
  const rows = reports.map(({ database, table, rows, isEqual }) => ({ database, table, rows, verified: isEqual }))
  const columns = {
    database: (row: (typeof rows)[number]) => row.database,
    table: (row: (typeof rows)[number]) => row.table,
    rows: (row: (typeof rows)[number]) => row.rows,
    verified: (row: (typeof rows)[number]) => row.verified,
  }
  printRows(rows, columns, { json, whenEmpty: '' })
  const different = reports.filter(({ isEqual }) => !isEqual)
  for (const { table, rows, copiedRows } of different) {
    message(
      `${table}: ${rows === copiedRows ? 'the rows differ' : `${rows} rows in SQLite, ${copiedRows} in PostgreSQL`}`,
    )
  }
  if (different.length > 0) throw new CommandError('the copy differs from the files, so it was rolled back')
  message(`copied and verified: ${reports.reduce((sum, report) => sum + report.rows, 0)} rows`)
}
