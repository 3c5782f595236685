import { CLEAN_UPS } from '../../../storage/sqlite/clean-ups.js'
import type { Schema } from '../../../storage/sqlite/migrate.js'

/** The token database. Times are ms since 1970 UTC; hashes come from credentials.ts; TEXT compares byte for byte (BINARY). */
export const tokenSchema: Schema = {
  name: 'token',
  applicationId: 0x53415401, // "SAT" 1
  migrations: [
    {
      version: 1,
      name: 'apps, users, sessions, grants with their codes and tokens, audit events',
      sql: `
        CREATE TABLE apps (
          appid                      TEXT    NOT NULL PRIMARY KEY,
          name                       TEXT    NOT NULL,
          redirect_uris              TEXT    NOT NULL, -- JSON array of strings
          requires_secret_on_refresh INTEGER NOT NULL CHECK (requires_secret_on_refresh IN (0, 1)),
          requires_pkce              INTEGER NOT NULL CHECK (requires_pkce IN (0, 1)),
          reads_answers              INTEGER NOT NULL CHECK (reads_answers IN (0, 1)),
          is_disabled                INTEGER NOT NULL CHECK (is_disabled IN (0, 1)),
          is_deleted                 INTEGER NOT NULL DEFAULT 0 CHECK (is_deleted IN (0, 1)),
          created_at_ms              INTEGER NOT NULL
        ) STRICT, WITHOUT ROWID;

        -- How apps present themselves, apart from what API requests read. Every text is empty for none.
        CREATE TABLE app_faces (
          appid        TEXT NOT NULL PRIMARY KEY REFERENCES apps,
          home_page    TEXT NOT NULL,
          description  TEXT NOT NULL,
          contact      TEXT NOT NULL,
          privacy_link TEXT NOT NULL,
          logo_hash    TEXT NOT NULL DEFAULT '',
          logo_type    TEXT NOT NULL DEFAULT '',
          logo         BLOB NOT NULL DEFAULT x''
        ) STRICT;

        CREATE TABLE app_secrets (
          secret_id       TEXT    NOT NULL PRIMARY KEY,
          appid           TEXT    NOT NULL REFERENCES apps,
          name            TEXT    NOT NULL,
          secret_hash     BLOB    NOT NULL CHECK (length(secret_hash) = 32),
          created_at_ms   INTEGER NOT NULL,
          expires_at_ms   INTEGER,
          revoked_at_ms   INTEGER,
          last_used_at_ms INTEGER,
          request_id      TEXT
        ) STRICT, WITHOUT ROWID;
        CREATE INDEX app_secrets_by_app ON app_secrets (appid, created_at_ms, secret_id);

        CREATE TABLE users (
          user_id       TEXT    NOT NULL PRIMARY KEY,
          username      TEXT    NOT NULL,
          external_id   TEXT    NOT NULL, -- empty for none
          nickname      TEXT    NOT NULL,
          avatar        TEXT    NOT NULL,
          password_hash TEXT    NOT NULL, -- empty for none
          is_disabled   INTEGER NOT NULL CHECK (is_disabled IN (0, 1)),
          is_deleted    INTEGER NOT NULL CHECK (is_deleted IN (0, 1)),
          created_at_ms INTEGER NOT NULL
        ) STRICT, WITHOUT ROWID;
        CREATE UNIQUE INDEX users_by_username ON users (username);
        CREATE UNIQUE INDEX users_by_external_id ON users (external_id) WHERE external_id <> '';
        CREATE INDEX users_by_password_hash ON users (password_hash) WHERE password_hash <> '';

        CREATE TABLE identities (
          provider        TEXT    NOT NULL,
          subject         TEXT    NOT NULL,
          user_id         TEXT    NOT NULL REFERENCES users,
          created_at_ms   INTEGER NOT NULL,
          last_used_at_ms INTEGER NOT NULL, -- 0 for never
          PRIMARY KEY (provider, subject)
        ) STRICT, WITHOUT ROWID;
        CREATE INDEX identities_by_user ON identities (user_id, provider, subject);

        -- Sign-ins that go on elsewhere. Nothing in it is a secret; what browsers carry is stored hashed.
        CREATE TABLE sign_ins (
          challenge_hash          BLOB    NOT NULL PRIMARY KEY CHECK (length(challenge_hash) = 32),
          browser_hash            BLOB    NOT NULL CHECK (length(browser_hash) = 32),
          source                  TEXT    NOT NULL,
          provider                TEXT    NOT NULL, -- empty for the platform
          link_to                 TEXT    NOT NULL, -- a user_id; empty for a sign-in
          appid                   TEXT    NOT NULL, -- empty if no app asks for access
          redirect_uri            TEXT    NOT NULL,
          return_uri              TEXT    NOT NULL,
          restart_uri             TEXT    NOT NULL,
          language                TEXT    NOT NULL,
          asks_to_reauthenticate  INTEGER NOT NULL CHECK (asks_to_reauthenticate IN (0, 1)),
          asks_to_select_account  INTEGER NOT NULL CHECK (asks_to_select_account IN (0, 1)),
          state                   TEXT    NOT NULL CHECK (state IN ('pending', 'accepted', 'rejected', 'done')),
          expires_at_ms           INTEGER NOT NULL,
          subject                 TEXT    NOT NULL, -- this and what follows: from the decision on
          nickname                TEXT    NOT NULL,
          avatar                  TEXT    NOT NULL,
          sid                     TEXT    NOT NULL, -- the provider's id of its session
          may_create              INTEGER NOT NULL CHECK (may_create IN (0, 1)),
          session_seconds         INTEGER NOT NULL,
          is_cancelled            INTEGER NOT NULL CHECK (is_cancelled IN (0, 1)),
          verifier_hash           BLOB    CHECK (length(verifier_hash) = 32), -- until the browser comes back
          verifier_expires_at_ms  INTEGER NOT NULL
        ) STRICT, WITHOUT ROWID;
        CREATE UNIQUE INDEX sign_ins_by_verifier ON sign_ins (verifier_hash) WHERE verifier_hash IS NOT NULL;
        CREATE INDEX sign_ins_by_expiry ON sign_ins (expires_at_ms);
        CREATE INDEX sign_ins_by_source ON sign_ins (source, expires_at_ms);
        CREATE INDEX sign_ins_by_subject ON sign_ins (provider, subject) WHERE state = 'accepted';

        CREATE TABLE sessions (
          session_hash    BLOB    NOT NULL PRIMARY KEY CHECK (length(session_hash) = 32),
          user_id         TEXT    NOT NULL REFERENCES users,
          way             TEXT    NOT NULL CHECK (way IN ('password', 'platform', 'provider')),
          provider        TEXT    NOT NULL, -- this and the next two are empty for the other ways
          subject         TEXT    NOT NULL,
          sid             TEXT    NOT NULL, -- the provider's id of its session
          browser         TEXT    NOT NULL, -- such as 'Firefox, Linux'; empty if unknown
          started_at_ms   INTEGER NOT NULL,
          last_seen_at_ms INTEGER NOT NULL,
          expires_at_ms   INTEGER NOT NULL
        ) STRICT, WITHOUT ROWID;
        CREATE INDEX sessions_by_user ON sessions (user_id, started_at_ms);
        CREATE INDEX sessions_by_expiry ON sessions (expires_at_ms);
        CREATE INDEX sessions_by_sid ON sessions (provider, sid) WHERE sid <> '';
        CREATE INDEX sessions_by_subject ON sessions (provider, subject) WHERE provider <> '';

        -- Each user as each app sees them: made at the first exchange, never changed, never removed. Nothing is found by its
        -- openid, and 128 random bits need no index to be unique.
        CREATE TABLE openids (
          appid   TEXT NOT NULL REFERENCES apps,
          user_id TEXT NOT NULL REFERENCES users,
          openid  TEXT NOT NULL,
          PRIMARY KEY (appid, user_id)
        ) STRICT, WITHOUT ROWID;

        -- A grant is there, without tokens, from the moment its code is issued. The exchange, which apps wait for and
        -- which comes in crowds, then changes one row and two indexes; and what is new lies together in each of the two, so
        -- that exchanges share pages. A refresh changes one row and no index. What is looked for by place needs no index.
        CREATE TABLE grants (
          place              INTEGER PRIMARY KEY, -- of its code and its tokens, or the next free one: see grant-row.ts
          appid              TEXT    NOT NULL REFERENCES apps,
          user_id            TEXT    NOT NULL REFERENCES users,
          scope              TEXT    NOT NULL,
          permissions        TEXT    NOT NULL CHECK (permissions IN ('', 'read_answers')),
          consent_version    TEXT    NOT NULL,
          issued_at_ms       INTEGER NOT NULL, -- its code; lists are in this order
          code_hash          BLOB    NOT NULL CHECK (length(code_hash) = 32), -- stays, so that a replay is known as one
          code_expires_at_ms INTEGER NOT NULL,
          redirect_uri       TEXT, -- until the exchange
          code_challenge     TEXT    NOT NULL DEFAULT '', -- until the exchange; empty for none
          grant_id           TEXT, -- this and what follows: from the exchange on
          openid             TEXT,
          refresh_token_hash BLOB    CHECK (length(refresh_token_hash) = 32),
          created_at_ms      INTEGER,
          last_used_at_ms    INTEGER,
          answers_read_at_ms INTEGER NOT NULL DEFAULT 0, -- 0 for never
          expires_at_ms      INTEGER NOT NULL, -- the code; from the exchange on the refresh token
          revoked_at_ms      INTEGER,
          access_tokens      BLOB    NOT NULL DEFAULT x'' CHECK (length(access_tokens) % 38 = 0), -- see grant-row.ts
          CHECK (iif(created_at_ms IS NULL,
            redirect_uri IS NOT NULL AND grant_id IS NULL,
            redirect_uri IS NULL AND grant_id IS NOT NULL AND refresh_token_hash IS NOT NULL))
        ) STRICT;
        -- Of these an exchange changes the first and the last.
        CREATE UNIQUE INDEX grants_by_id ON grants (grant_id) WHERE grant_id IS NOT NULL;
        CREATE INDEX grants_by_issue ON grants (issued_at_ms);
        CREATE INDEX grants_by_app ON grants (appid, issued_at_ms);
        CREATE INDEX grants_by_user ON grants (user_id, appid, issued_at_ms);
        -- Ended codes and revoked grants stay for a week. However many somebody makes, no request looks at them: a code
        -- that ended, or that was issued a while ago, is given a revoked_at_ms too. What one user has open with other apps
        -- is not looked at either.
        CREATE INDEX grants_open ON grants (user_id, appid, issued_at_ms) WHERE revoked_at_ms IS NULL;
        CREATE INDEX grants_by_end ON grants (coalesce(revoked_at_ms, expires_at_ms));

        CREATE TABLE audit_events (
          number     INTEGER PRIMARY KEY, -- in the order of their writing
          event_id   TEXT    NOT NULL, -- for those who read events; nothing is found by it
          at_ms      INTEGER NOT NULL,
          kind       TEXT    NOT NULL,
          actor      TEXT    NOT NULL,
          actor_id   TEXT    NOT NULL, -- empty if appid or user_id says it
          actor_source TEXT  NOT NULL,
          request_id TEXT    NOT NULL,
          appid      TEXT    NOT NULL,
          user_id    TEXT    NOT NULL,
          grant_id   TEXT    NOT NULL,
          note       TEXT    NOT NULL
        ) STRICT;

        -- Whom events concern, in place of indexes of them: see audit.ts.
        CREATE TABLE audit_blocks (
          block INTEGER PRIMARY KEY, -- number / 768 of its events
          ids   TEXT    NOT NULL -- the last 4 characters of each appid and user id among them
        ) STRICT;
        ${CLEAN_UPS}
      `,
    },
  ],
}
