// SurveyStore on SQLite: reads are synchronous, writes go through a GroupCommit.
import { cleanUps } from '../../../storage/sqlite/clean-ups.js'
import { causedWriting, GroupCommit, type GroupCommitOptions, writing } from '../../../storage/sqlite/group-commit.js'
import { Kept } from '../../../storage/sqlite/kept.js'
import { migrate } from '../../../storage/sqlite/migrate.js'
import { type Connection, fileProbe, openDatabase, reading, toStoreError } from '../../../storage/sqlite/open.js'
import type { SurveyStore } from '../survey-store.js'
import { answerReads, answerUpkeep, answerWrites } from './answers.js'
import { eventReads, eventRecorder, eventUpkeep, readRecorder } from './events.js'
import { MAX_KEPT_BYTES } from './kept-sizes.js'
import { surveyStoreReads } from './reads.js'
import { surveySchema } from './schema.js'
import { surveyStoreWrites } from './writes.js'

/**
 * Opens the survey database in `file`, creating and migrating it as needed; `:memory:` for one that ends with the store.
 * @throws StoreUnavailable, DatabaseRefused, or the system's error
 */
export function openSqliteSurveyStore(options: {
  file: string
  onCommit?: GroupCommitOptions['onCommit']
}): SurveyStore {
  const db = openDatabase(options.file)
  try {
    migrate(db, surveySchema)
    return createSqliteSurveyStore(db, new GroupCommit(db, { onCommit: options.onCommit }))
  } catch (error) {
    db.close()
    throw toStoreError(error, options.file)
  }
}

/** The store over an open, migrated connection for its reads and a writer for its writes; closing it closes both. */
export function createSqliteSurveyStore(db: Connection, writer: GroupCommit): SurveyStore {
  const kept = new Kept<object>(db, MAX_KEPT_BYTES)
  const reads = surveyStoreReads(db, kept)
  const record = eventRecorder(db) // one, so that its events are in their order
  const writes = surveyStoreWrites(db, kept, record)
  const { listAnswers, findAnswer } = answerReads(db)
  const { putAnswers, deleteAnswers } = answerWrites(db, record)
  const { removeAnswers, respondentKey } = answerUpkeep(db)
  const { listEvents } = eventReads(db)
  const { removeEvents } = eventUpkeep(db)
  return {
    findSurvey: reading(db, reads.findSurvey),
    listSurveys: reading(db, reads.listSurveys),
    putSurveys: causedWriting(writer, writes.putSurveys),
    deleteSurveys: causedWriting(writer, writes.deleteSurveys),
    exportSurveys: reading(db, reads.exportSurveys),
    exportSummaries: reading(db, reads.exportSummaries),
    listAnswers: reading(db, listAnswers),
    findAnswer: reading(db, findAnswer),
    putAnswers: causedWriting(writer, putAnswers),
    deleteAnswers: causedWriting(writer, deleteAnswers),
    removeAnswers: writing(writer, removeAnswers),
    recordAnswersRead: writing(writer, readRecorder(db)),
    respondentKey: writing(writer, respondentKey),
    listEvents: reading(db, listEvents),
    removeEvents: writing(writer, removeEvents),
    ...cleanUps(db, writer),
    ping: reading(db, fileProbe(db)),
    async close() {
      await writer.close()
      kept.forgetAll()
      db.close()
    },
  }
}
