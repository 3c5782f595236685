// The tables of the token store. Names compare byte for byte (COLLATE "C"); times are ms since 1970; hashes are 32 bytes.
import { cleanUpsTable } from '../../../storage/postgres/clean-ups.js'
import type { Schema } from '../../../storage/postgres/migrate.js'

const first = `
CREATE TABLE apps (
  appid text COLLATE "C" PRIMARY KEY,
  name text NOT NULL,
  redirect_uris text[] NOT NULL,
  requires_secret_on_refresh boolean NOT NULL,
  requires_pkce boolean NOT NULL,
  reads_answers boolean NOT NULL,
  is_disabled boolean NOT NULL,
  is_deleted boolean NOT NULL DEFAULT false,
  created_at_ms bigint NOT NULL
);

-- How apps present themselves, apart from what API requests read. Every text is empty for none.
CREATE TABLE app_faces (
  appid text COLLATE "C" PRIMARY KEY REFERENCES apps,
  home_page text NOT NULL,
  description text NOT NULL,
  contact text NOT NULL,
  privacy_link text NOT NULL,
  logo_hash text NOT NULL DEFAULT '',
  logo_type text NOT NULL DEFAULT '',
  logo bytea NOT NULL DEFAULT ''
);

CREATE TABLE app_secrets (
  secret_id text COLLATE "C" PRIMARY KEY,
  appid text COLLATE "C" NOT NULL REFERENCES apps,
  name text COLLATE "C" NOT NULL,
  secret_hash bytea NOT NULL CHECK (octet_length(secret_hash) = 32),
  created_at_ms bigint NOT NULL,
  expires_at_ms bigint,
  revoked_at_ms bigint,
  last_used_at_ms bigint,
  request_id text
);
CREATE INDEX app_secrets_by_app ON app_secrets (appid, created_at_ms, secret_id);

CREATE TABLE users (
  user_id text COLLATE "C" PRIMARY KEY,
  username text COLLATE "C" NOT NULL,
  external_id text COLLATE "C" NOT NULL, -- empty for none
  nickname text NOT NULL,
  avatar text NOT NULL,
  password_hash text COLLATE "C" NOT NULL, -- empty for none
  is_disabled boolean NOT NULL,
  is_deleted boolean NOT NULL,
  created_at_ms bigint NOT NULL,
  CONSTRAINT users_by_username UNIQUE (username)
);
CREATE UNIQUE INDEX users_by_external_id ON users (external_id) WHERE external_id <> '';
CREATE INDEX users_by_password_hash ON users (password_hash) WHERE password_hash <> '';

CREATE TABLE identities (
  provider text COLLATE "C" NOT NULL,
  subject text COLLATE "C" NOT NULL,
  user_id text COLLATE "C" NOT NULL REFERENCES users,
  created_at_ms bigint NOT NULL,
  last_used_at_ms bigint NOT NULL, -- 0 for never
  PRIMARY KEY (provider, subject)
);
CREATE INDEX identities_by_user ON identities (user_id, provider, subject);

-- Sign-ins that go on elsewhere. Nothing in it is a secret; what browsers carry is stored hashed.
CREATE TABLE sign_ins (
  challenge_hash bytea PRIMARY KEY CHECK (octet_length(challenge_hash) = 32),
  browser_hash bytea NOT NULL CHECK (octet_length(browser_hash) = 32),
  source text COLLATE "C" NOT NULL,
  provider text COLLATE "C" NOT NULL, -- empty for the platform
  link_to text COLLATE "C" NOT NULL, -- a user_id; empty for a sign-in
  appid text COLLATE "C" NOT NULL, -- empty if no app asks for access
  redirect_uri text COLLATE "C" NOT NULL,
  return_uri text COLLATE "C" NOT NULL,
  restart_uri text COLLATE "C" NOT NULL,
  language text NOT NULL,
  asks_to_reauthenticate boolean NOT NULL,
  asks_to_select_account boolean NOT NULL,
  state text NOT NULL CHECK (state IN ('pending', 'accepted', 'rejected', 'done')),
  expires_at_ms bigint NOT NULL,
  -- This and what follows: from the decision on.
  subject text COLLATE "C" NOT NULL,
  nickname text NOT NULL,
  avatar text NOT NULL,
  sid text COLLATE "C" NOT NULL, -- the provider's id of its session
  may_create boolean NOT NULL,
  session_seconds bigint NOT NULL,
  is_cancelled boolean NOT NULL,
  verifier_hash bytea CHECK (octet_length(verifier_hash) = 32), -- until the browser comes back
  verifier_expires_at_ms bigint NOT NULL
);
CREATE UNIQUE INDEX sign_ins_by_verifier ON sign_ins (verifier_hash) WHERE verifier_hash IS NOT NULL;
CREATE INDEX sign_ins_by_expiry ON sign_ins (expires_at_ms);
CREATE INDEX sign_ins_by_source ON sign_ins (source, expires_at_ms);
CREATE INDEX sign_ins_by_subject ON sign_ins (provider, subject) WHERE state = 'accepted';

CREATE TABLE sessions (
  session_hash bytea PRIMARY KEY CHECK (octet_length(session_hash) = 32),
  user_id text COLLATE "C" NOT NULL REFERENCES users,
  way text NOT NULL CHECK (way IN ('password', 'platform', 'provider')),
  -- This and the next two are empty for the other ways; sid is the provider's id of its session.
  provider text COLLATE "C" NOT NULL,
  subject text COLLATE "C" NOT NULL,
  sid text COLLATE "C" NOT NULL,
  browser text NOT NULL, -- such as 'Firefox, Linux'; empty if unknown
  started_at_ms bigint NOT NULL,
  last_seen_at_ms bigint NOT NULL,
  expires_at_ms bigint NOT NULL
);
CREATE INDEX sessions_by_user ON sessions (user_id, started_at_ms);
CREATE INDEX sessions_by_expiry ON sessions (expires_at_ms);
CREATE INDEX sessions_by_sid ON sessions (provider, sid) WHERE sid <> '';
CREATE INDEX sessions_by_subject ON sessions (provider, subject) WHERE provider <> '';

CREATE TABLE codes (
  code_hash bytea PRIMARY KEY CHECK (octet_length(code_hash) = 32),
  appid text COLLATE "C" NOT NULL REFERENCES apps,
  user_id text COLLATE "C" NOT NULL REFERENCES users,
  redirect_uri text COLLATE "C" NOT NULL,
  code_challenge text COLLATE "C" NOT NULL, -- empty for none
  scope text NOT NULL,
  permissions text NOT NULL CHECK (permissions IN ('', 'read_answers')),
  consent_version text NOT NULL,
  issued_at_ms bigint NOT NULL,
  expires_at_ms bigint NOT NULL,
  used_at_ms bigint,
  -- The grant it was exchanged for. No foreign key: the grant may be removed before the code.
  grant_id text COLLATE "C",
  CHECK ((used_at_ms IS NULL) = (grant_id IS NULL))
) WITH (fillfactor = 60); -- room for the used one to be written in place
-- Of all codes, so that using one leaves every index as it is.
CREATE INDEX codes_by_user ON codes (appid, user_id, issued_at_ms);
CREATE INDEX codes_by_expiry ON codes (expires_at_ms);

-- Each user as each app sees them: made at the first exchange, never changed, never removed. Nothing is found by its openid, and
-- 128 random bits need no index to be unique.
CREATE TABLE openids (
  appid text COLLATE "C" NOT NULL REFERENCES apps,
  user_id text COLLATE "C" NOT NULL REFERENCES users,
  openid text COLLATE "C" NOT NULL,
  PRIMARY KEY (appid, user_id)
);

CREATE TABLE grants (
  grant_id text COLLATE "C" PRIMARY KEY,
  appid text COLLATE "C" NOT NULL REFERENCES apps,
  user_id text COLLATE "C" NOT NULL REFERENCES users,
  openid text COLLATE "C" NOT NULL,
  scope text NOT NULL,
  permissions text NOT NULL CHECK (permissions IN ('', 'read_answers')),
  consent_version text NOT NULL,
  refresh_token_hash bytea NOT NULL CHECK (octet_length(refresh_token_hash) = 32),
  created_at_ms bigint NOT NULL,
  last_used_at_ms bigint NOT NULL,
  answers_read_at_ms bigint NOT NULL, -- 0 for never
  -- End of the refresh token. Access tokens minted on its last day live on.
  expires_at_ms bigint NOT NULL,
  revoked_at_ms bigint,
  CONSTRAINT grants_by_refresh_token UNIQUE (refresh_token_hash)
) WITH (fillfactor = 90); -- room for last uses to be written in place
CREATE INDEX grants_by_creation ON grants (created_at_ms, grant_id);
CREATE INDEX grants_by_app ON grants (appid, created_at_ms, grant_id);
-- With the appid, so that no planner walks the app's long index for one user's grants.
CREATE INDEX grants_by_user ON grants (user_id, appid, created_at_ms, grant_id);
CREATE INDEX grants_by_end ON grants (coalesce(revoked_at_ms, expires_at_ms));

CREATE TABLE access_tokens (
  access_token_hash bytea PRIMARY KEY CHECK (octet_length(access_token_hash) = 32),
  grant_id text COLLATE "C" NOT NULL REFERENCES grants,
  -- Order of minting within the grant.
  serial integer NOT NULL,
  expires_at_ms bigint NOT NULL
);
CREATE UNIQUE INDEX access_tokens_by_grant ON access_tokens (grant_id, serial);
CREATE INDEX access_tokens_by_expiry ON access_tokens (expires_at_ms);

CREATE TABLE audit_events (
  -- Sorts by time.
  event_id text COLLATE "C" PRIMARY KEY,
  at_ms bigint NOT NULL,
  kind text NOT NULL,
  actor text NOT NULL,
  actor_id text NOT NULL, -- empty if appid or user_id says it
  actor_source text NOT NULL,
  request_id text NOT NULL,
  appid text COLLATE "C" NOT NULL,
  user_id text COLLATE "C" NOT NULL,
  grant_id text COLLATE "C" NOT NULL,
  note text NOT NULL
);
CREATE INDEX audit_events_by_app ON audit_events (appid, event_id);
CREATE INDEX audit_events_by_user ON audit_events (user_id, event_id);

-- Emptied by a crash, which only makes the rates of that minute laxer.
CREATE UNLOGGED TABLE request_counts (
  key text COLLATE "C" PRIMARY KEY,
  window_end_ms bigint NOT NULL,
  requests integer NOT NULL
);
${cleanUpsTable('token')}`

export const tokenSchema: Schema = {
  name: 'token',
  migrations: [
    { version: 1, name: 'apps, users, sessions, codes, grants, access tokens, audit events, rates', sql: first },
  ],
}
