import { CLEAN_UPS } from '../../../storage/sqlite/clean-ups.js'
import type { Schema } from '../../../storage/sqlite/migrate.js'

/** The survey database. */
export const surveySchema: Schema = {
  name: 'survey',
  applicationId: 0x53415302, // "SAS" 2
  migrations: [
    {
      version: 1,
      name: 'surveys, audit events',
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

        CREATE TABLE survey_events (
          event_id      TEXT    NOT NULL PRIMARY KEY, -- sorts by time
          at_ms         INTEGER NOT NULL,
          kind          TEXT    NOT NULL,
          actor         TEXT    NOT NULL,
          actor_id      TEXT    NOT NULL,
          actor_source  TEXT    NOT NULL,
          request_id    TEXT    NOT NULL,
          survey_id     INTEGER NOT NULL,
          owner_user_id TEXT    NOT NULL
        ) STRICT, WITHOUT ROWID;
        CREATE INDEX survey_events_by_survey ON survey_events (survey_id, event_id);
        CREATE INDEX survey_events_by_owner ON survey_events (owner_user_id, event_id);
        ${CLEAN_UPS}
      `,
    },
  ],
}
