import { openDatabase } from './database.js'

const SCHEMA = `
  CREATE TABLE clients (id TEXT PRIMARY KEY, secret TEXT NOT NULL, redirect_uri TEXT NOT NULL) WITHOUT ROWID;
  CREATE TABLE users (id TEXT PRIMARY KEY, nickname TEXT NOT NULL, avatar TEXT NOT NULL) WITHOUT ROWID;
  CREATE TABLE codes (code TEXT PRIMARY KEY, client_id TEXT NOT NULL, user_id TEXT NOT NULL,
    redirect_uri TEXT NOT NULL, scope TEXT NOT NULL, expires_at INTEGER NOT NULL) WITHOUT ROWID;
  CREATE TABLE access_tokens (token TEXT PRIMARY KEY, client_id TEXT NOT NULL, user_id TEXT NOT NULL,
    scope TEXT NOT NULL, expires_at INTEGER NOT NULL) WITHOUT ROWID;
  CREATE TABLE refresh_tokens (token TEXT PRIMARY KEY, client_id TEXT NOT NULL, user_id TEXT NOT NULL,
    scope TEXT NOT NULL, expires_at INTEGER NOT NULL) WITHOUT ROWID;`

export function open(file) {
  const { read, write, transaction, together } = openDatabase(file, SCHEMA)
  const insertAccessToken = write(
    'INSERT INTO access_tokens (client_id, user_id, scope, token, expires_at) VALUES (?, ?, ?, ?, ?)',
  )
  const insertRefreshToken = write(
    'INSERT INTO refresh_tokens (client_id, user_id, scope, token, expires_at) VALUES (?, ?, ?, ?, ?)',
  )
  return {
    together,
    insertClient: write('INSERT INTO clients (id, secret, redirect_uri) VALUES (?, ?, ?)'),
    client: read('SELECT secret, redirect_uri AS redirectUri FROM clients WHERE id = ?'),
    insertUser: write('INSERT INTO users (id, nickname, avatar) VALUES (?, ?, ?) ON CONFLICT DO NOTHING'),
    insertCode: write(
      'INSERT INTO codes (code, client_id, user_id, redirect_uri, scope, expires_at) VALUES (?, ?, ?, ?, ?, ?)',
    ),
    code: read(
      `SELECT client_id AS clientId, user_id AS userId, redirect_uri AS redirectUri, scope, expires_at AS expiresAt
       FROM codes WHERE code = ?`,
    ),
    deleteCode: write('DELETE FROM codes WHERE code = ?'),
    insertAccessToken,
    insertTokens: transaction(
      (clientId, userId, scope, accessToken, accessExpiresAt, refreshToken, refreshExpiresAt) => {
        insertAccessToken(clientId, userId, scope, accessToken, accessExpiresAt)
        insertRefreshToken(clientId, userId, scope, refreshToken, refreshExpiresAt)
      },
    ),
    accessToken: read(
      `SELECT t.client_id AS clientId, t.user_id AS userId, t.scope, t.expires_at AS expiresAt, u.nickname, u.avatar
       FROM access_tokens t JOIN users u ON u.id = t.user_id WHERE t.token = ?`,
    ),
    refreshToken: read(
      `SELECT client_id AS clientId, user_id AS userId, scope, expires_at AS expiresAt
       FROM refresh_tokens WHERE token = ?`,
    ),
    deleteRefreshToken: write('DELETE FROM refresh_tokens WHERE token = ?'),
  }
}
