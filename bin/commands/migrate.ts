// survey-auth migrate: brings the databases to the schema of this program.
import type { Command } from 'commander'
import { inspectDatabase } from '../compose/database-file.js'
import { openSurveyStore, openTokenStore } from '../compose/stores.js'
import { readConfig } from '../config.js'
import { printRows } from '../output.js'
import { examples, jsonOption } from './options.js'

export function addMigrateCommand(program: Command): void {
  program
    .command('migrate')
    .description('create or upgrade the databases; `serve` does it too, this does it before')
    .addOption(jsonOption())
    .addHelpText('after', examples('migrate', 'migrate --json'))
    .action(migrate)
}

async function migrate({ json }: { json?: true }): Promise<void> {
  const config = readConfig(process.env)
  const { tokenDatabaseFile, surveyDatabaseFile } = config
  const files = { token: tokenDatabaseFile, survey: surveyDatabaseFile }
  const before = Object.values(files).map(versionOf)
  for (const openStore of [openTokenStore, openSurveyStore]) await (await openStore(config)).close() // opening migrates
  const rows = Object.entries(files).map(([database, file], index) => {
    return { database, file, from_version: before[index] ?? 0, to_version: versionOf(file) }
  })
  printRows(
    rows,
    {
      database: (row) => row.database,
      from: (row) => row.from_version,
      to: (row) => row.to_version,
      file: (row) => row.file,
    },
    { json: json, whenEmpty: '' },
  )
}

function versionOf(file: string): number {
  return inspectDatabase(file)?.schemaVersion ?? 0
}
