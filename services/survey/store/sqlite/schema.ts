import { CLEAN_UPS } from '../../../storage/sqlite/clean-ups.js'
import type { Schema } from '../../../storage/sqlite/migrate.js'

/** The survey database. */
export const surveySchema: Schema = {
  name: 'survey',
  applicationId: 0x53415302, // "SAS" 2
  migrations: [
    {
      version: 1,
      name: 'surveys, answers, audit events',
      sql: `
        -- The document comes last, so that lists read the columns before it and not its pages.
        CREATE TABLE surveys (
          survey_id     INTEGER NOT NULL PRIMARY KEY,
          owner_user_id TEXT    NOT NULL,
          hash          TEXT    NOT NULL,
          title         TEXT    NOT NULL,
          state         INTEGER NOT NULL,
          document      BLOB    NOT NULL
        ) STRICT;
        CREATE INDEX surveys_by_owner ON surveys (owner_user_id, survey_id);

        -- The answers of a survey; of none once it is deleted, or they all are.
        CREATE TABLE answer_sets (
          set_id     INTEGER NOT NULL PRIMARY KEY,
          survey_id  INTEGER UNIQUE,
          highest_id INTEGER NOT NULL, -- of all answers it ever had
          total      INTEGER NOT NULL
        ) STRICT;

        CREATE TABLE answers (
          set_id      INTEGER NOT NULL,
          answer_id   INTEGER NOT NULL,
          end_seconds INTEGER NOT NULL,
          document    BLOB    NOT NULL,
          PRIMARY KEY (set_id, answer_id)
        ) STRICT;
        CREATE INDEX answers_by_end ON answers (set_id, end_seconds, answer_id);

        -- How many answers of a set end in an hour, and within which ids they are.
        CREATE TABLE answer_hours (
          set_id   INTEGER NOT NULL,
          hour     INTEGER NOT NULL, -- since 1970
          answers  INTEGER NOT NULL,
          first_id INTEGER NOT NULL,
          last_id  INTEGER NOT NULL,
          PRIMARY KEY (set_id, hour)
        ) STRICT, WITHOUT ROWID;

        CREATE TABLE respondent_keys (
          only_row INTEGER NOT NULL PRIMARY KEY CHECK (only_row = 1),
          key      BLOB    NOT NULL
        ) STRICT;

        CREATE TABLE survey_events (
          event_id      TEXT    NOT NULL PRIMARY KEY, -- sorts by time
          at_ms         INTEGER NOT NULL,
          kind          TEXT    NOT NULL,
          actor         TEXT    NOT NULL,
          actor_id      TEXT    NOT NULL,
          actor_source  TEXT    NOT NULL,
          request_id    TEXT    NOT NULL,
          survey_id     INTEGER NOT NULL,
          owner_user_id TEXT    NOT NULL,
          appid         TEXT    NOT NULL,
          first_answer_id INTEGER NOT NULL,
          last_answer_id  INTEGER NOT NULL
        ) STRICT, WITHOUT ROWID;
        CREATE INDEX survey_events_by_survey ON survey_events (survey_id, event_id);
        CREATE INDEX survey_events_by_owner ON survey_events (owner_user_id, event_id);
        ${CLEAN_UPS}
      `,
    },
  ],
}
