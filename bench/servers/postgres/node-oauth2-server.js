import { openDatabase } from './database.js'

const SCHEMA = `
  CREATE TABLE clients (id TEXT PRIMARY KEY, secret TEXT NOT NULL, redirect_uri TEXT NOT NULL);
  CREATE TABLE users (id TEXT PRIMARY KEY, nickname TEXT NOT NULL, avatar TEXT NOT NULL);
  CREATE TABLE codes (code TEXT PRIMARY KEY, client_id TEXT NOT NULL, user_id TEXT NOT NULL,
    redirect_uri TEXT NOT NULL, scope TEXT NOT NULL, expires_at BIGINT NOT NULL);
  CREATE TABLE access_tokens (token TEXT PRIMARY KEY, client_id TEXT NOT NULL, user_id TEXT NOT NULL,
    scope TEXT NOT NULL, expires_at BIGINT NOT NULL);
  CREATE TABLE refresh_tokens (token TEXT PRIMARY KEY, client_id TEXT NOT NULL, user_id TEXT NOT NULL,
    scope TEXT NOT NULL, expires_at BIGINT NOT NULL);`

export async function open(url) {
  const { read, write, together } = await openDatabase(url, SCHEMA)
  return {
    together,
    insertClient: write('INSERT INTO clients (id, secret, redirect_uri) VALUES ($1, $2, $3)'),
    client: read('SELECT secret, redirect_uri AS "redirectUri" FROM clients WHERE id = $1'),
    insertUser: write('INSERT INTO users (id, nickname, avatar) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING'),
    insertCode: write(
      'INSERT INTO codes (code, client_id, user_id, redirect_uri, scope, expires_at) VALUES ($1, $2, $3, $4, $5, $6)',
    ),
    code: read(
      `SELECT client_id AS "clientId", user_id AS "userId", redirect_uri AS "redirectUri", scope,
         expires_at AS "expiresAt"
       FROM codes WHERE code = $1`,
    ),
    deleteCode: write('DELETE FROM codes WHERE code = $1'),
    insertAccessToken: write(
      'INSERT INTO access_tokens (client_id, user_id, scope, token, expires_at) VALUES ($1, $2, $3, $4, $5)',
    ),
    /** One statement, so that a transaction takes one round trip instead of four. */
    insertTokens: write(
      `WITH access AS (
         INSERT INTO access_tokens (client_id, user_id, scope, token, expires_at) VALUES ($1, $2, $3, $4, $5))
       INSERT INTO refresh_tokens (client_id, user_id, scope, token, expires_at) VALUES ($1, $2, $3, $6, $7)`,
    ),
    accessToken: read(
      `SELECT t.client_id AS "clientId", t.user_id AS "userId", t.scope, t.expires_at AS "expiresAt", u.nickname,
         u.avatar
       FROM access_tokens t JOIN users u ON u.id = t.user_id WHERE t.token = $1`,
    ),
    refreshToken: read(
      `SELECT client_id AS "clientId", user_id AS "userId", scope, expires_at AS "expiresAt"
       FROM refresh_tokens WHERE token = $1`,
    ),
    deleteRefreshToken: write('DELETE FROM refresh_tokens WHERE token = $1'),
  }
}
