// survey-auth migrate: brings the databases to the schema of this program.
import type { Command } from 'commander'
import type { CopiedSchema } from '../../services/storage/copy/copy-stores.js'
import { surveyCopy, tokenCopy } from '../compose/copied-schemas.js'
import { versionOfFile, warnOfOwner } from '../compose/database-file.js'
import { isMade, openSurveyStore, openTokenStore, versionOnPostgres } from '../compose/stores.js'
import { readConfig } from '../config.js'
import { printRows } from '../output.js'
import type { Database } from '../settings.js'
import { command, type Json } from './command.js'

export function addMigrateCommand(program: Command): void {
  command(program, 'migrate', {
    about: 'create or upgrade the databases; `serve` does it too, this does it before',
    examples: ['migrate', 'migrate --json'],
  }).action(migrate)
}

async function migrate({ json }: Json): Promise<void> {
  const config = readConfig(process.env)
  const hasSurveys = !config.surveyProviderUrl || (await isMade(surveyCopy, config.surveyDatabase))
  const databases: readonly (readonly [CopiedSchema, Database])[] = [
    [tokenCopy, config.tokenDatabase],
    ...(hasSurveys ? [[surveyCopy, config.surveyDatabase] as const] : []),
  ]
  const openers = hasSurveys ? [openTokenStore, openSurveyStore] : [openTokenStore]
  for (const [, where] of databases) if (where.kind === 'sqlite') warnOfOwner(where.file)
  const before = await Promise.all(databases.map(versionOf))
  for (const openStore of openers) await (await openStore(config)).close() // opening migrates
  const after = await Promise.all(databases.map(versionOf))
  const rows = databases.map(([schemas, where], index) => {
    const database = schemas.sqlite.name
    const file = where.kind === 'sqlite' ? where.file : 'PostgreSQL'
    return { database, file, from_version: before[index], to_version: after[index] }
  })
  printRows(rows, ['database', 'from_version', 'to_version', 'file'], { json })
}

/** 0 when there is no schema yet. */
async function versionOf([schemas, where]: readonly [CopiedSchema, Database]): Promise<number> {
  if (where.kind === 'sqlite') return versionOfFile(where.file, schemas.sqlite)
  return versionOnPostgres(schemas, where.url)
}
