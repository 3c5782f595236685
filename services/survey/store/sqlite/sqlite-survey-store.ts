// SurveyStore on SQLite: reads on the caller's thread, writes by name through a Writer.
import { GroupCommit, type GroupCommitOptions, type Writer } from '../../../sqlite/group-commit.js'
import { migrate } from '../../../sqlite/migrate.js'
import { type Connection, openDatabase, readAnything, reading, toStoreError } from '../../../sqlite/open.js'
import type { SurveyStore } from '../survey-store.js'
import { KeptSurveys } from './kept-surveys.js'
import { surveyStoreReads } from './reads.js'
import { surveySchema } from './schema.js'
import { type SurveyStoreWrites, surveyStoreWrites } from './writes.js'

/**
 * Opens the survey database of `file`, created and migrated as needed; `:memory:` for one that ends with the store.
 * @throws StoreUnavailable, SchemaMismatch
 */
export function openSqliteSurveyStore(options: {
  file: string
  onCommit?: GroupCommitOptions['onCommit']
}): SurveyStore {
  const db = openDatabase(options.file)
  try {
    migrate(db, surveySchema)
    const kept = new KeptSurveys(db)
    const writer = new GroupCommit(db, surveyStoreWrites(db, kept), { onCommit: options.onCommit })
    return createSqliteSurveyStore(db, writer, kept)
  } catch (error) {
    db.close()
    throw toStoreError(error)
  }
}

/** The store over an open, migrated connection for its reads and a writer for its writes; closing it closes both. */
export function createSqliteSurveyStore(
  db: Connection,
  writer: Writer<SurveyStoreWrites>,
  kept: KeptSurveys,
): SurveyStore {
  const reads = surveyStoreReads(db, kept)
  return {
    findSurvey: reading(db, reads.findSurvey),
    listSurveys: reading(db, reads.listSurveys),
    putSurveys: (ownerUserId, drafts, now) => writer.submit('putSurveys', { ownerUserId, drafts, now }),
    exportSurveys: reading(db, reads.exportSurveys),
    ping: reading(db, () => readAnything(db)),
    async close() {
      await writer.close()
      db.close()
    },
  }
}
