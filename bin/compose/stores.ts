// Which database a configuration names. The PostgreSQL driver is loaded only where it is used.
import { mkdirSync } from 'node:fs'
import path from 'node:path'
import { openSqliteSurveyStore } from '../../services/survey/store/sqlite/sqlite-survey-store.js'
import type { SurveyStore } from '../../services/survey/store/survey-store.js'
import { openSqliteTokenStore } from '../../services/token/store/sqlite/sqlite-token-store.js'
import type { TokenStore } from '../../services/token/store/token-store.js'
import type { Config } from '../config.js'

/** Creates and migrates it as needed. */
export async function openTokenStore({ tokenDatabase }: Pick<Config, 'tokenDatabase'>): Promise<TokenStore> {
  if (tokenDatabase.kind === 'postgres') {
    const postgres = await import('../../services/token/store/postgres/postgres-token-store.js')
    return postgres.openPostgresTokenStore({ url: tokenDatabase.url })
  }
  makePrivateDirectory(path.dirname(tokenDatabase.file))
  return openSqliteTokenStore({ file: tokenDatabase.file })
}

/** Creates and migrates it as needed. */
export async function openSurveyStore({ surveyDatabase }: Pick<Config, 'surveyDatabase'>): Promise<SurveyStore> {
  if (surveyDatabase.kind === 'postgres') {
    const postgres = await import('../../services/survey/store/postgres/postgres-survey-store.js')
    return postgres.openPostgresSurveyStore({ url: surveyDatabase.url })
  }
  makePrivateDirectory(path.dirname(surveyDatabase.file))
  return openSqliteSurveyStore({ file: surveyDatabase.file })
}

/** For the owner alone if it is missing. One that exists keeps its mode: `doctor` judges it. */
export function makePrivateDirectory(directory: string): void {
  mkdirSync(directory, { recursive: true, mode: 0o700 })
}
