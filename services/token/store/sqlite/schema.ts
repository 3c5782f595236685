import type { Schema } from '../../../sqlite/migrate.js'

/** SQL: the place of a hash as places.ts reads it: its first 8 bytes without the first bit. */
const placeSql = (hash: string) =>
  `('0x' || substr('0123456701234567', instr('0123456789ABCDEF', substr(hex(${hash}), 1, 1)), 1)
    || substr(hex(${hash}), 2, 15)) ->> '$'`

const LAST_BLOCK = '(SELECT (max(number) + 1) / 768 - 1 FROM audit_events)'

/** The token database. Times are ms since 1970 UTC; hashes come from credentials.ts; TEXT compares byte for byte (BINARY). */
export const tokenSchema: Schema = {
  name: 'token',
  applicationId: 0x53415401, // "SAT" 1
  migrations: [
    {
      version: 1,
      name: 'apps, users, sessions, codes, grants, access tokens, audit events',
      sql: `
        CREATE TABLE apps (
          appid                      TEXT    NOT NULL PRIMARY KEY,
          name                       TEXT    NOT NULL,
          redirect_uris              TEXT    NOT NULL, -- JSON array of strings
          requires_secret_on_refresh INTEGER NOT NULL CHECK (requires_secret_on_refresh IN (0, 1)),
          is_disabled                INTEGER NOT NULL CHECK (is_disabled IN (0, 1)),
          created_at_ms              INTEGER NOT NULL
        ) STRICT, WITHOUT ROWID;

        CREATE TABLE app_secrets (
          secret_id       TEXT    NOT NULL PRIMARY KEY,
          appid           TEXT    NOT NULL REFERENCES apps,
          name            TEXT    NOT NULL,
          secret_hash     BLOB    NOT NULL CHECK (length(secret_hash) = 32),
          created_at_ms   INTEGER NOT NULL,
          expires_at_ms   INTEGER,
          revoked_at_ms   INTEGER,
          last_used_at_ms INTEGER
        ) STRICT, WITHOUT ROWID;
        CREATE INDEX app_secrets_by_app ON app_secrets (appid, created_at_ms, secret_id);

        CREATE TABLE users (
          user_id       TEXT    NOT NULL PRIMARY KEY,
          username      TEXT    NOT NULL,
          nickname      TEXT    NOT NULL,
          avatar        TEXT    NOT NULL,
          password_hash TEXT    NOT NULL,
          is_disabled   INTEGER NOT NULL CHECK (is_disabled IN (0, 1)),
          created_at_ms INTEGER NOT NULL
        ) STRICT, WITHOUT ROWID;
        CREATE UNIQUE INDEX users_by_username ON users (username);

        CREATE TABLE sessions (
          session_hash    BLOB    NOT NULL PRIMARY KEY CHECK (length(session_hash) = 32),
          user_id         TEXT    NOT NULL REFERENCES users,
          started_at_ms   INTEGER NOT NULL,
          last_seen_at_ms INTEGER NOT NULL,
          expires_at_ms   INTEGER NOT NULL
        ) STRICT, WITHOUT ROWID;
        CREATE INDEX sessions_by_user ON sessions (user_id, started_at_ms);
        CREATE INDEX sessions_by_expiry ON sessions (expires_at_ms);

        -- Used codes stay until they are cleaned away, so that a replay is known as one.
        CREATE TABLE codes (
          code_hash     BLOB    NOT NULL PRIMARY KEY CHECK (length(code_hash) = 32),
          appid         TEXT    NOT NULL REFERENCES apps,
          user_id       TEXT    NOT NULL REFERENCES users,
          redirect_uri  TEXT    NOT NULL,
          scope         TEXT    NOT NULL,
          issued_at_ms  INTEGER NOT NULL,
          expires_at_ms INTEGER NOT NULL,
          used_at_ms    INTEGER,
          grant_id      TEXT, -- what it was exchanged for, which may be cleaned away before it
          CHECK ((used_at_ms IS NULL) = (grant_id IS NULL))
        ) STRICT, WITHOUT ROWID;
        CREATE INDEX codes_unused ON codes (appid, user_id, issued_at_ms) WHERE used_at_ms IS NULL;
        CREATE INDEX codes_by_expiry ON codes (expires_at_ms);

        -- Each user as each app sees them: made at the first exchange, never changed, never removed.
        CREATE TABLE openids (
          appid   TEXT NOT NULL REFERENCES apps,
          user_id TEXT NOT NULL REFERENCES users,
          openid  TEXT NOT NULL,
          PRIMARY KEY (appid, user_id)
        ) STRICT, WITHOUT ROWID;
        CREATE UNIQUE INDEX openids_by_openid ON openids (openid);

        -- A grant has exactly one refresh token, which lives as long as it does.
        CREATE TABLE grants (
          grant_id           TEXT    NOT NULL PRIMARY KEY,
          appid              TEXT    NOT NULL REFERENCES apps,
          user_id            TEXT    NOT NULL REFERENCES users,
          openid             TEXT    NOT NULL,
          scope              TEXT    NOT NULL,
          refresh_token_hash BLOB    NOT NULL CHECK (length(refresh_token_hash) = 32),
          created_at_ms      INTEGER NOT NULL,
          last_used_at_ms    INTEGER NOT NULL,
          expires_at_ms      INTEGER NOT NULL,
          revoked_at_ms      INTEGER
        ) STRICT, WITHOUT ROWID;
        CREATE UNIQUE INDEX grants_by_refresh_token ON grants (refresh_token_hash);
        CREATE INDEX grants_by_creation ON grants (created_at_ms, grant_id);
        CREATE INDEX grants_by_app ON grants (appid, created_at_ms, grant_id);
        CREATE INDEX grants_by_user ON grants (user_id, created_at_ms, grant_id);
        CREATE INDEX grants_by_end ON grants (coalesce(revoked_at_ms, expires_at_ms));

        CREATE TABLE access_tokens (
          access_token_hash BLOB    NOT NULL PRIMARY KEY CHECK (length(access_token_hash) = 32),
          grant_id          TEXT    NOT NULL REFERENCES grants,
          serial            INTEGER NOT NULL, -- order of minting within the grant
          expires_at_ms     INTEGER NOT NULL
        ) STRICT, WITHOUT ROWID;
        CREATE UNIQUE INDEX access_tokens_by_grant ON access_tokens (grant_id, serial);
        CREATE INDEX access_tokens_by_expiry ON access_tokens (expires_at_ms);

        CREATE TABLE audit_events (
          event_id   TEXT    NOT NULL PRIMARY KEY, -- sorts by time
          at_ms      INTEGER NOT NULL,
          kind       TEXT    NOT NULL,
          actor      TEXT    NOT NULL,
          request_id TEXT    NOT NULL,
          appid      TEXT    NOT NULL,
          user_id    TEXT    NOT NULL,
          grant_id   TEXT    NOT NULL,
          note       TEXT    NOT NULL
        ) STRICT, WITHOUT ROWID;
        CREATE INDEX audit_events_by_app ON audit_events (appid, event_id);
        CREATE INDEX audit_events_by_user ON audit_events (user_id, event_id);
      `,
    },
    {
      version: 2,
      name: 'no index of openids',
      sql: `
        -- Nothing is found by its openid, and 128 random bits need no index to be unique.
        DROP INDEX openids_by_openid;
      `,
    },
    {
      version: 3,
      name: 'access tokens in the rows of their grants, rows of grants at their places, audit events by number',
      sql: `
        -- A refresh changes one row, and no index. What is never looked for has no index, and what is always
        -- looked for by place needs none.
        CREATE TABLE placed_grants (
          place              INTEGER PRIMARY KEY, -- of its tokens, or the next free one: see places.ts
          grant_id           TEXT    NOT NULL,
          appid              TEXT    NOT NULL REFERENCES apps,
          user_id            TEXT    NOT NULL REFERENCES users,
          openid             TEXT    NOT NULL,
          scope              TEXT    NOT NULL,
          refresh_token_hash BLOB    NOT NULL CHECK (length(refresh_token_hash) = 32),
          created_at_ms      INTEGER NOT NULL,
          last_used_at_ms    INTEGER NOT NULL,
          expires_at_ms      INTEGER NOT NULL,
          revoked_at_ms      INTEGER,
          access_tokens      BLOB    NOT NULL CHECK (length(access_tokens) % 38 = 0) -- see packed-tokens.ts
        ) STRICT;

        WITH placed AS (SELECT *, ${placeSql('refresh_token_hash')} AS place FROM grants)
        INSERT INTO placed_grants
        SELECT (place & ~15) + row_number() OVER (PARTITION BY place & ~15 ORDER BY place) - 1, grant_id, appid, user_id,
          openid, scope, refresh_token_hash, created_at_ms, last_used_at_ms, expires_at_ms, revoked_at_ms,
          (SELECT unhex(coalesce(group_concat(hex(access_token_hash) || printf('%012x', t.expires_at_ms), '' ORDER BY serial DESC), ''))
           FROM access_tokens t WHERE t.grant_id = placed.grant_id)
        FROM placed;

        -- 0.1.0 made access tokens without a place: where their grants are. None is good for longer than its lifetime after
        -- the migration, and then a later version may drop this.
        CREATE TABLE access_tokens_of_0_1_0 (
          own_place   INTEGER PRIMARY KEY,
          grant_place INTEGER NOT NULL
        ) STRICT;
        CREATE UNIQUE INDEX grants_by_id ON placed_grants (grant_id);
        INSERT OR IGNORE INTO access_tokens_of_0_1_0
        SELECT ${placeSql('access_token_hash')} AS own_place, place
        FROM access_tokens JOIN placed_grants USING (grant_id)
        WHERE substr(access_token_hash, 1, 8) <> substr(refresh_token_hash, 1, 8);

        DROP TABLE access_tokens;
        DROP TABLE grants;
        ALTER TABLE placed_grants RENAME TO grants;
        CREATE INDEX grants_by_creation ON grants (created_at_ms, grant_id);
        CREATE INDEX grants_by_app ON grants (appid, created_at_ms, grant_id);
        CREATE INDEX grants_by_user ON grants (user_id, created_at_ms, grant_id);
        CREATE INDEX grants_by_end ON grants (coalesce(revoked_at_ms, expires_at_ms));

        CREATE TABLE numbered_events (
          number     INTEGER PRIMARY KEY, -- in the order of their writing
          event_id   TEXT    NOT NULL, -- for those who read events; nothing is found by it
          at_ms      INTEGER NOT NULL,
          kind       TEXT    NOT NULL,
          actor      TEXT    NOT NULL,
          request_id TEXT    NOT NULL,
          appid      TEXT    NOT NULL,
          user_id    TEXT    NOT NULL,
          grant_id   TEXT    NOT NULL,
          note       TEXT    NOT NULL
        ) STRICT;
        INSERT INTO numbered_events (event_id, at_ms, kind, actor, request_id, appid, user_id, grant_id, note)
        SELECT event_id, at_ms, kind, actor, request_id, appid, user_id, grant_id, note
        FROM audit_events ORDER BY event_id;
        DROP TABLE audit_events;
        ALTER TABLE numbered_events RENAME TO audit_events;

        -- Whom events concern, in place of indexes of them: see audit.ts.
        CREATE TABLE audit_blocks (
          block INTEGER PRIMARY KEY, -- number / 768 of its events
          ids   TEXT    NOT NULL -- the last 4 characters of each appid and user id among them
        ) STRICT;
        WITH RECURSIVE blocks (block) AS (SELECT 0 UNION ALL SELECT block + 1 FROM blocks WHERE block < ${LAST_BLOCK})
        INSERT INTO audit_blocks
        SELECT block, (
          SELECT group_concat(DISTINCT substr(appid, -4)) || ',' || group_concat(DISTINCT substr(user_id, -4))
          FROM audit_events WHERE number BETWEEN block * 768 AND block * 768 + 767)
        FROM blocks WHERE block <= ${LAST_BLOCK};
      `,
    },
    {
      version: 4,
      name: 'codes in the rows of the grants they become',
      sql: `
        -- A grant is there, without tokens, from the moment its code is issued. The exchange, which apps wait for and
        -- which comes in crowds, then changes one row and two indexes where it inserted into six trees and took out of a
        -- seventh; and what is new lies together in each of the two, so that exchanges share pages.
        CREATE TABLE begun_grants (
          place              INTEGER PRIMARY KEY, -- of its code and its tokens, or the next free one: see places.ts
          appid              TEXT    NOT NULL REFERENCES apps,
          user_id            TEXT    NOT NULL REFERENCES users,
          scope              TEXT    NOT NULL,
          issued_at_ms       INTEGER NOT NULL, -- its code; lists are in this order
          code_hash          BLOB    CHECK (length(code_hash) = 32), -- stays, so that a replay is known as one
          code_expires_at_ms INTEGER,
          redirect_uri       TEXT, -- until the exchange
          grant_id           TEXT, -- this and what follows: from the exchange on
          openid             TEXT,
          refresh_token_hash BLOB    CHECK (length(refresh_token_hash) = 32),
          created_at_ms      INTEGER,
          last_used_at_ms    INTEGER,
          expires_at_ms      INTEGER NOT NULL, -- the code; from the exchange on the refresh token
          revoked_at_ms      INTEGER,
          access_tokens      BLOB    NOT NULL DEFAULT x'' CHECK (length(access_tokens) % 38 = 0), -- see packed-tokens.ts
          CHECK (iif(created_at_ms IS NULL,
            code_hash IS NOT NULL AND redirect_uri IS NOT NULL AND grant_id IS NULL,
            redirect_uri IS NULL AND grant_id IS NOT NULL AND refresh_token_hash IS NOT NULL))
        ) STRICT;

        CREATE INDEX codes_by_grant ON codes (grant_id);
        INSERT INTO begun_grants
        SELECT place, g.appid, g.user_id, g.scope, coalesce(issued_at_ms, created_at_ms), code_hash, c.expires_at_ms, NULL,
          g.grant_id, openid, refresh_token_hash, created_at_ms, last_used_at_ms, g.expires_at_ms, revoked_at_ms, access_tokens
        FROM grants g LEFT JOIN codes c ON c.grant_id = g.grant_id;
        -- Codes of before know no place for a grant. Until they are exchanged these are where nothing else is.
        INSERT INTO begun_grants (place, appid, user_id, scope, issued_at_ms, code_hash, code_expires_at_ms, redirect_uri,
          expires_at_ms)
        SELECT -row_number() OVER (ORDER BY issued_at_ms), appid, user_id, scope, issued_at_ms, code_hash, expires_at_ms,
          redirect_uri, expires_at_ms
        FROM codes WHERE used_at_ms IS NULL;
        DROP TABLE codes;
        DROP TABLE grants;
        ALTER TABLE begun_grants RENAME TO grants;

        -- Of these an exchange changes the first and the last.
        CREATE UNIQUE INDEX grants_by_id ON grants (grant_id) WHERE grant_id IS NOT NULL;
        CREATE INDEX grants_by_issue ON grants (issued_at_ms);
        CREATE INDEX grants_by_app ON grants (appid, issued_at_ms);
        CREATE INDEX grants_by_user ON grants (user_id, issued_at_ms);
        CREATE INDEX grants_by_end ON grants (coalesce(revoked_at_ms, expires_at_ms));

        -- Where a code's grant is when it is not at the place of the code: codes of before, and their grants.
        CREATE TABLE codes_elsewhere (
          code_hash BLOB    NOT NULL PRIMARY KEY,
          place     INTEGER NOT NULL UNIQUE REFERENCES grants ON UPDATE CASCADE ON DELETE CASCADE
        ) STRICT, WITHOUT ROWID;
        INSERT INTO codes_elsewhere SELECT code_hash, place FROM grants WHERE code_hash IS NOT NULL;
      `,
    },
    {
      version: 5,
      name: 'an index of what is open of each user',
      sql: `
        -- Ended codes and revoked grants stay for a week. However many somebody makes, no request looks at them: a code
        -- that ended, or that was issued a while ago, is given a revoked_at_ms too. An exchange does not change this index.
        CREATE INDEX grants_open ON grants (user_id, issued_at_ms) WHERE revoked_at_ms IS NULL;
      `,
    },
  ],
}
