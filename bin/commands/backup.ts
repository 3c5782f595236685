// survey-auth backup: both databases in one file, while the service runs.
import { closeSync, fsyncSync, linkSync, mkdtempSync, openSync, rmSync, statSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import type { Command } from 'commander'
import { reasonOf } from '../../services/rpc/service-error.js'
import { StoreUnavailable } from '../../services/storage/store-unavailable.js'
import { surveySchema } from '../../services/survey/store/sqlite/schema.js'
import { removePassing } from '../../services/token/store/sqlite/passing.js'
import { tokenSchema } from '../../services/token/store/sqlite/schema.js'
import { isThere, noDatabase, snapshotDatabase } from '../compose/database-file.js'
import { markBackedUp } from '../compose/sqlite-facts.js'
import { type Config, readConfig } from '../config.js'
import { errorCode, isOfSystem, unwritable } from '../error-code.js'
import { CommandError, EXIT } from '../exit.js'
import { printRow } from '../output.js'
import { isOfDatabase } from '../own-files.js'
import { command, type Json } from './command.js'

const NOTES = `
FILE is a tar archive of token.db and survey.db, each a consistent copy of its database, with empty -wal, -shm and
-journal files that replace old ones. It holds no usable credential: codes, tokens and secrets are hashed, passwords
too, and sessions and unused codes are left out.

To restore, stop the service and unpack into an empty DATA_DIR:
  $ mkdir -m 700 /var/lib/survey-auth && tar -xf FILE -C /var/lib/survey-auth
What happened after the backup is undone, revocations too: see "How do I restore?" in docs/operators/data.md.
`

export function addBackupCommand(program: Command): void {
  command(program, 'backup <file>', {
    about: 'copy both databases into one file, also while the service runs; never overwrites a file',
    examples: ['backup /backup/survey-auth-$(date +%F).tar'],
    notes: NOTES,
  }).action(backup)
}

async function backup(file: string, { json }: Json, command: Command): Promise<void> {
  if (file === '-') command.error('error: a backup goes to a file, not to standard output')
  const config = readConfig(process.env)
  const files = filesOf(config)
  if (!isThere(files.token)) throw noDatabase(files.token)
  const target = path.resolve(file)
  if ([config.tokenDatabase, config.surveyDatabase].some((database) => isOfDatabase(target, database))) {
    throw new CommandError(`${target} is a name that SQLite uses: it would take a backup for a part of the database`)
  }
  try {
    await writeBeside(target, files)
  } catch (error) {
    if (errorCode(error, '') === 'EEXIST') throw new CommandError(`${target} exists already; a backup never overwrites`)
    if (isOfSystem(error)) throw new CommandError(unwritable(target, error))
    throw error instanceof StoreUnavailable ? new CommandError(`cannot write ${target}: ${reasonOf(error)}`) : error
  }
  printRow({ file: target, bytes: statSync(target).size }, { json })
  for (const database of Object.values(files)) markBackedUp(database)
}

interface Files {
  readonly token: string
  readonly survey: string
}

/** @throws CommandError when a database is not a file: PostgreSQL has better tools of its own. */
function filesOf({ tokenDatabase, surveyDatabase }: Config): Files {
  if (tokenDatabase.kind === 'sqlite' && surveyDatabase.kind === 'sqlite') {
    return { token: tokenDatabase.file, survey: surveyDatabase.file }
  }
  throw new CommandError('this copies SQLite files', EXIT.failure, 'back PostgreSQL up with pg_dump or pg_basebackup')
}

/** Writes in a private folder beside the target until the archive is whole; the target's name must be free. */
async function writeBeside(target: string, files: Files): Promise<void> {
  const folder = path.dirname(target)
  const scratch = mkdtempSync(path.join(folder, '.survey-auth-backup-'))
  try {
    const archive = path.join(scratch, 'backup.tar')
    await writeArchive(files, scratch, archive)
    linkSync(archive, target)
    try {
      flushFolder(folder)
    } catch (error) {
      rmSync(target)
      throw error
    }
  } finally {
    rmSync(scratch, { recursive: true, force: true })
  }
}

/** So that the name is on the disk too. Where a folder cannot be flushed or read, the backup is there all the same. */
function flushFolder(folder: string): void {
  try {
    flush(folder)
  } catch (error) {
    if (!['EACCES', 'EPERM', 'EINVAL', 'ENOTSUP'].includes(errorCode(error, ''))) throw error
  }
}

function flush(file: string): void {
  const descriptor = openSync(file, 'r')
  try {
    fsyncSync(descriptor)
  } finally {
    closeSync(descriptor)
  }
}

const [TOKEN, SURVEY] = ['token.db', 'survey.db']

/** Surveys first: the owner of each is then in the copy of the users, which is made later. */
async function writeArchive(files: Files, scratch: string, archive: string): Promise<void> {
  const [survey, token] = [path.join(scratch, SURVEY), path.join(scratch, TOKEN)]
  const hasSurveys = isThere(files.survey) // absent until it is first opened
  if (hasSurveys) snapshotDatabase(files.survey, survey, surveySchema)
  snapshotDatabase(files.token, token, tokenSchema, removePassing)
  const names = (hasSurveys ? [TOKEN, SURVEY] : [TOKEN]).flatMap((name) => [name, ...emptyLogs(scratch, name)])
  const { create } = await import('tar') // no other command needs it
  create({ sync: true, file: archive, cwd: scratch, portable: true }, names)
  flush(archive)
}

/**
 * Empty logs, and an empty index of one, replace what a process that was killed has left: SQLite would apply a log to whatever
 * database is beside it, and trust an index for as long as another process has it open.
 */
function emptyLogs(scratch: string, database: string): string[] {
  const names = ['wal', 'shm', 'journal'].map((kind) => `${database}-${kind}`)
  for (const name of names) writeFileSync(path.join(scratch, name), '')
  return names
}
