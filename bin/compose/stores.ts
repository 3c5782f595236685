// Which database a configuration names. The PostgreSQL driver is loaded only where it is used.
import { chmodSync, readdirSync, statSync } from 'node:fs'
import path from 'node:path'
import { reasonOf } from '../../services/rpc/service-error.js'
import type { CopiedSchema } from '../../services/storage/copy/copy-stores.js'
import { newerSchema } from '../../services/storage/migration.js'
import { makeDirectories } from '../../services/storage/sqlite/private-directory.js'
import { StoreUnavailable } from '../../services/storage/store-unavailable.js'
import { openSqliteSurveyStore } from '../../services/survey/store/sqlite/sqlite-survey-store.js'
import type { SurveyStore } from '../../services/survey/store/survey-store.js'
import { openSqliteTokenStore } from '../../services/token/store/sqlite/sqlite-token-store.js'
import type { TokenStore } from '../../services/token/store/token-store.js'
import type { Config } from '../config.js'
import { errorCode, isOfSystem } from '../error-code.js'
import { CommandError, EXIT } from '../exit.js'
import type { Database } from '../settings.js'
import { fileFailure, versionNow } from './database-file.js'

const WRITABLE = 'set DATA_DIR to a directory that this user may write'

/** Told of each commit of a SQLite database: how many writes shared it, and its time. */
export type OnCommit = (store: 'token' | 'survey', writes: number, durationMs: number) => void

/** Creates and migrates it as needed. @throws CommandError when its file cannot be made or is not a database. */
export async function openTokenStore(config: Config, onCommit?: OnCommit): Promise<TokenStore> {
  const { tokenDatabase } = config
  if (tokenDatabase.kind === 'postgres') {
    const postgres = await import('../../services/token/store/postgres/postgres-token-store.js')
    return naming('token', postgres.openPostgresTokenStore({ url: tokenDatabase.url }))
  }
  const { file } = tokenDatabase
  return opened(file, () => openSqliteTokenStore({ file, onCommit: onCommit?.bind(undefined, 'token') }))
}

/** Creates and migrates it as needed. @throws CommandError when its file cannot be made or is not a database. */
export async function openSurveyStore(config: Config, onCommit?: OnCommit): Promise<SurveyStore> {
  const { surveyDatabase } = config
  if (surveyDatabase.kind === 'postgres') {
    const postgres = await import('../../services/survey/store/postgres/postgres-survey-store.js')
    return naming('survey', postgres.openPostgresSurveyStore({ url: surveyDatabase.url }))
  }
  const { file } = surveyDatabase
  return opened(file, () => openSqliteSurveyStore({ file, onCommit: onCommit?.bind(undefined, 'survey') }))
}

/** Whether it exists, with its tables. @throws CommandError when this cannot be known; DatabaseRefused */
export async function isMade(schemas: CopiedSchema, where: Database): Promise<boolean> {
  return (await versionOf(schemas, where)) !== 0
}

/** Of the schema, 0 for none; undefined when the file cannot be asked now. @throws like `isMade` */
async function versionOf(schemas: CopiedSchema, where: Database): Promise<number | undefined> {
  return where.kind === 'sqlite' ? versionNow(where.file, schemas.sqlite) : versionOnPostgres(schemas, where.url)
}

/** The message before a missing database is made: after a mistyped DATA_DIR everything would seem to be gone. */
export function creating({ postgres }: CopiedSchema, where: Database): string {
  return where.kind === 'sqlite'
    ? `creating a new database: ${where.file}`
    : `creating the tables of the ${postgres.name} database`
}

/** What the log says of a database before it is opened, if anything. @throws like `isMade` */
export async function beforeOpening(schemas: CopiedSchema, where: Database): Promise<string | undefined> {
  const version = await versionOf(schemas, where)
  if (version === 0) return creating(schemas, where)
  const newer = newerSchema(version ?? 0, schemas[where.kind].migrations)
  return newer && `the ${schemas.postgres.name} database has schema version ${version}; ${newer}`
}

/** Version of the schema that is there, 0 for none. @throws CommandError when the server does not answer; DatabaseRefused */
export async function versionOnPostgres({ sqlite, postgres }: CopiedSchema, url: string): Promise<number> {
  const { examine } = await import('../../services/storage/postgres/open.js')
  return (await naming(sqlite.name, examine(url, postgres))).version
}

/** Makes the failure of a database that does not answer say which one it is. */
export async function naming<T>(store: string, opening: Promise<T>): Promise<T> {
  try {
    return await opening
  } catch (error) {
    if (!(error instanceof StoreUnavailable)) throw error
    const variable = `${store.toUpperCase()}_DATABASE_URL`
    const text = `the ${store} database is unavailable: ${reasonOf(error)}`
    throw new CommandError(text, EXIT.unavailable, `${variable} or ${variable}_FILE names it`)
  }
}

/** What `open` returns for a file; its folder is made if it is missing. */
function opened<S>(file: string, open: () => S): S {
  makePrivateDirectory(path.dirname(file))
  try {
    return open()
  } catch (error) {
    const failure = fileFailure(file, error)
    if (!isOfSystem(failure)) throw failure
    throw cannot(`open ${file}`, failure)
  }
}

/**
 * Makes a missing directory, for its owner only. One that exists keeps its mode: `doctor` judges it.
 * @throws CommandError when it cannot be made.
 */
export function makePrivateDirectory(directory: string): void {
  try {
    makeDirectories(directory)
  } catch (error) {
    throw cannot(`make the directory ${directory}`, error)
  }
}

function cannot(what: string, error: unknown): CommandError {
  const code = errorCode(error, 'unknown')
  const hint = code === 'ENOSPC' ? 'its disk is full: make room on it' : WRITABLE
  return new CommandError(`cannot ${what} (${code})`, EXIT.unavailable, hint)
}

/** Makes an empty directory of this user private if a lax umask left it open. Once it holds anything, `doctor` judges it. */
export function closeWhileEmpty(directory: string): void {
  try {
    const { mode, uid } = statSync(directory)
    if ((mode & 0o077) === 0 || uid !== process.getuid?.() || readdirSync(directory).length > 0) return
    chmodSync(directory, 0o700)
  } catch (error) {
    if (!isOfSystem(error)) throw error // making it, or a file in it, will tell what is wrong
  }
}
