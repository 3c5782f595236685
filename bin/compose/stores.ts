// Which database a configuration names.
import { mkdirSync } from 'node:fs'
import path from 'node:path'
import { openSqliteSurveyStore } from '../../services/survey/store/sqlite/sqlite-survey-store.js'
import type { SurveyStore } from '../../services/survey/store/survey-store.js'
import { openSqliteTokenStore } from '../../services/token/store/sqlite/sqlite-token-store.js'
import type { TokenStore } from '../../services/token/store/token-store.js'
import type { Config } from '../config.js'

export async function openTokenStore({ tokenDatabaseFile }: Config): Promise<TokenStore> {
  makePrivateDirectory(path.dirname(tokenDatabaseFile))
  return openSqliteTokenStore({ file: tokenDatabaseFile })
}

export async function openSurveyStore({ surveyDatabaseFile }: Config): Promise<SurveyStore> {
  makePrivateDirectory(path.dirname(surveyDatabaseFile))
  return openSqliteSurveyStore({ file: surveyDatabaseFile })
}

/** For the owner alone if it is missing. One that exists keeps its mode: `doctor` judges it. */
export function makePrivateDirectory(directory: string): void {
  mkdirSync(directory, { recursive: true, mode: 0o700 })
}
