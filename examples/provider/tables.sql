-- What a platform's own database could hold. Both example providers run this file when they start; ids, owners and titles are the
-- platform's own, and what only readers of one survey need is a document in protobuf's JSON.
CREATE TABLE IF NOT EXISTS surveys (
  id INTEGER PRIMARY KEY,
  owner TEXT NOT NULL CHECK (owner <> ''), -- the platform's id of the user: external_id of survey-auth
  hash TEXT NOT NULL,
  title TEXT NOT NULL,
  state INTEGER NOT NULL, -- SurveyState: 1 draft, 2 collecting, 3 paused
  details TEXT NOT NULL -- the rest of a surveyauth.v1.Survey
);
CREATE INDEX IF NOT EXISTS surveys_of_owner ON surveys (owner, id);

-- Whoever adds an answer takes max(answer_id) + 1 in the transaction that inserts it: so ids follow the order of commits.
CREATE TABLE IF NOT EXISTS answers (
  survey_id INTEGER NOT NULL REFERENCES surveys ON DELETE CASCADE,
  answer_id INTEGER NOT NULL,
  respondent TEXT NOT NULL,
  end_time INTEGER NOT NULL, -- seconds since 1970
  details TEXT NOT NULL, -- the rest of a surveyauth.v1.Answer
  PRIMARY KEY (survey_id, answer_id)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS answers_by_time ON answers (survey_id, end_time);
