import { cleanUpsTable } from '../../../storage/postgres/clean-ups.js'
import type { Schema } from '../../../storage/postgres/migrate.js'

/** The survey database. */
export const surveySchema: Schema = {
  name: 'survey',
  migrations: [
    {
      version: 1,
      name: 'surveys, audit events',
      sql: `
        CREATE TABLE surveys (
          survey_id bigint PRIMARY KEY,
          owner_user_id text COLLATE "C" NOT NULL,
          hash text NOT NULL,
          title text NOT NULL,
          state integer NOT NULL,
          document bytea NOT NULL
        );
        CREATE INDEX surveys_by_owner ON surveys (owner_user_id, survey_id);

        -- One row. Whoever stores surveys locks it, so that new ids ascend.
        CREATE TABLE survey_ids (
          only_row boolean PRIMARY KEY CHECK (only_row),
          highest_id bigint NOT NULL
        );
        INSERT INTO survey_ids (only_row, highest_id) VALUES (true, 0);

        CREATE TABLE survey_events (
          event_id text COLLATE "C" PRIMARY KEY, -- sorts by time
          at_ms bigint NOT NULL,
          kind text NOT NULL,
          actor text NOT NULL,
          actor_id text NOT NULL,
          actor_source text NOT NULL,
          request_id text NOT NULL,
          survey_id bigint NOT NULL,
          owner_user_id text COLLATE "C" NOT NULL
        );
        CREATE INDEX survey_events_by_survey ON survey_events (survey_id, event_id);
        CREATE INDEX survey_events_by_owner ON survey_events (owner_user_id, event_id);
        ${cleanUpsTable('survey')}
      `,
    },
  ],
}
