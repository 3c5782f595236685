import type { Schema } from '../../../sqlite/migrate.js'

/** The survey database. */
export const surveySchema: Schema = {
  name: 'survey',
  applicationId: 0x53415302, // "SAS" 2
  migrations: [
    {
      version: 1,
      name: 'surveys',
      sql: `
        -- The document comes last, so that lists read the columns before it and not its pages.
        CREATE TABLE surveys (
          survey_id     INTEGER NOT NULL PRIMARY KEY,
          owner_user_id TEXT    NOT NULL,
          version       INTEGER NOT NULL,
          hash          TEXT    NOT NULL,
          title         TEXT    NOT NULL,
          state         INTEGER NOT NULL,
          stored_at_ms  INTEGER NOT NULL,
          document      BLOB    NOT NULL
        ) STRICT;
        CREATE INDEX surveys_by_owner ON surveys (owner_user_id, survey_id);
      `,
    },
  ],
}
