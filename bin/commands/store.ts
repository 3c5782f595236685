// survey-auth store: moves the databases from one machine's SQLite files to PostgreSQL.
import path from 'node:path'
import type { Command } from 'commander'
import { CopyRefused } from '../../services/storage/copy/copy-refused.js'
import type { Job, TableReport } from '../../services/storage/copy/copy-stores.js'
import { surveyCopy, tokenCopy } from '../compose/copied-schemas.js'
import { isThere } from '../compose/database-file.js'
import { type Config, readConfig } from '../config.js'
import { CommandError, EXIT } from '../exit.js'
import { message, note, printRows, progress } from '../output.js'
import { command, group, type Json } from './command.js'

const NOTES = `
Copies token.db and survey.db of DATA_DIR to where the service will look for them: set TOKEN_DATABASE_URL and
SURVEY_DATABASE_URL (or …_FILE) to postgres:// addresses first; a file whose variable is not set so stays where it is.

Each file is read at one moment and written in one transaction; every value is compared with what PostgreSQL stored, and
all is committed only if all are equal. The files are never changed, and a database that has rows is never written to. The
service must be stopped. docs/operators/data.md has the move step by step.
`

export function addStoreCommands(program: Command): void {
  const store = group(program, 'store', { about: 'moving the databases', examples: ['store copy --help'] })

  command(store, 'copy', {
    about: 'copy everything from SQLite to an empty PostgreSQL database, and verify it',
    examples: ['store copy'],
    notes: NOTES,
  }).action(copy)
}

async function copy({ json }: Json): Promise<void> {
  const { copyStores } = await import('../../services/storage/copy/copy-stores.js') // loads all of pg: only here
  try {
    const say = progress()
    const onProgress = (table: string, rows: number, total: number) => say(`${table}: ${rows} of ${total} rows`)
    print(await copyStores(jobsOf(readConfig(process.env)), onProgress), json)
  } catch (error) {
    if (error instanceof CopyRefused) throw new CommandError(error.message, EXIT.failure, error.hint)
    throw error
  }
}

/** The files in DATA_DIR that have a target. */
function jobsOf({ dataDir, tokenDatabase, surveyDatabase }: Config): Job[] {
  const jobs = [
    { schema: surveyCopy, database: surveyDatabase },
    { schema: tokenCopy, database: tokenDatabase },
  ].flatMap(({ schema, database }): Job[] => {
    const { name } = schema.sqlite
    const file = path.join(dataDir, `${name}.db`)
    if (database.kind === 'postgres' && isThere(file)) return [{ file, schema, url: database.url }]
    const because =
      database.kind === 'sqlite'
        ? `${name.toUpperCase()}_DATABASE_URL is not a postgres:// address`
        : 'it does not exist'
    message(`${name}.db is not copied: ${because}`)
    return []
  })
  if (jobs.length > 0) return jobs
  const hint = 'set DATA_DIR, and TOKEN_DATABASE_URL and SURVEY_DATABASE_URL to postgres:// addresses'
  throw new CommandError(`there is nothing to copy in ${dataDir}`, EXIT.failure, hint)
}

/** @throws CommandError when a table differs. */
function print(reports: readonly TableReport[], json: true | undefined): void {
  const rows = reports.map(({ database, table, rows, isEqual }) => ({ database, table, rows, verified: isEqual }))
  printRows(rows, ['database', 'table', 'rows', 'verified'], { json })
  const different = reports.filter(({ isEqual }) => !isEqual)
  for (const { table, rows, copiedRows } of different) {
    message(
      `${table}: ${rows === copiedRows ? 'the rows differ' : `${rows} rows in SQLite, ${copiedRows} in PostgreSQL`}`,
    )
  }
  if (different.length > 0) throw new CommandError('the copy differs from the files, so it was rolled back')
  note(`copied and verified: ${reports.reduce((sum, report) => sum + report.rows, 0)} rows`)
}
