// survey-auth migrate: brings the databases to the schema of this program.
import type { Command } from 'commander'
import type { Schema } from '../../services/sqlite/migrate.js'
import { surveySchema } from '../../services/survey/store/sqlite/schema.js'
import { tokenSchema } from '../../services/token/store/sqlite/schema.js'
import { inspectDatabase } from '../compose/database-file.js'
import { openSurveyStore, openTokenStore } from '../compose/stores.js'
import { readConfig } from '../config.js'
import { printRows } from '../output.js'
import type { Database } from '../settings.js'
import { examples, type Json, jsonOption } from './options.js'

export function addMigrateCommand(program: Command): void {
  program
    .command('migrate')
    .description('create or upgrade the databases; `serve` does it too, this does it before')
    .addOption(jsonOption())
    .addHelpText('after', examples('migrate', 'migrate --json'))
    .action(migrate)
}

async function migrate({ json }: Json): Promise<void> {
  const config = readConfig(process.env)
  const databases: readonly [Schema, Database][] = [
    [tokenSchema, config.tokenDatabase],
    [surveySchema, config.surveyDatabase],
  ]
  const before = databases.map(versionOf)
  for (const openStore of [openTokenStore, openSurveyStore]) await (await openStore(config)).close() // opening migrates
  const after = databases.map(versionOf)
  const rows = databases.map(([{ name: database }, where], index) => {
    const file = where.kind === 'sqlite' ? where.file : 'PostgreSQL'
    return { database, file, from_version: before[index] ?? null, to_version: after[index] ?? null }
  })
  printRows(
    rows,
    {
      database: (row) => row.database,
      from: (row) => row.from_version,
      to: (row) => row.to_version,
      file: (row) => row.file,
    },
    { json, whenEmpty: '' },
  )
}

/** 0 when there is no schema yet; null for PostgreSQL, where a table of its own holds it. */
function versionOf([schema, where]: readonly [Schema, Database]): number | null {
  return where.kind === 'sqlite' ? (inspectDatabase(where.file, schema)?.schemaVersion ?? 0) : null
}
