import { openDatabase } from './database.js'

const SCHEMA = `
  CREATE TABLE entries (
    model TEXT NOT NULL, id TEXT NOT NULL, payload TEXT NOT NULL, grant_id TEXT, user_code TEXT, uid TEXT,
    consumed_at INTEGER, expires_at INTEGER, PRIMARY KEY (model, id)) WITHOUT ROWID;
  CREATE INDEX entries_by_grant ON entries (grant_id) WHERE grant_id IS NOT NULL;
  CREATE INDEX entries_by_uid ON entries (uid) WHERE uid IS NOT NULL;
  CREATE INDEX entries_by_user_code ON entries (user_code) WHERE user_code IS NOT NULL;`

const COLUMNS = 'payload, consumed_at AS consumedAt, expires_at AS expiresAt'

export function open(file) {
  const { read, write, together } = openDatabase(file, SCHEMA)
  return {
    together,
    upsert: write(
      `INSERT INTO entries (model, id, payload, grant_id, user_code, uid, expires_at) VALUES (?, ?, ?, ?, ?, ?, ?)
       ON CONFLICT (model, id) DO UPDATE SET payload = excluded.payload, grant_id = excluded.grant_id,
         user_code = excluded.user_code, uid = excluded.uid, expires_at = excluded.expires_at`,
    ),
    find: read(`SELECT ${COLUMNS} FROM entries WHERE model = ? AND id = ?`),
    findByUid: read(`SELECT ${COLUMNS} FROM entries WHERE model = ? AND uid = ?`),
    findByUserCode: read(`SELECT ${COLUMNS} FROM entries WHERE model = ? AND user_code = ?`),
    consume: write('UPDATE entries SET consumed_at = ? WHERE model = ? AND id = ?'),
    destroy: write('DELETE FROM entries WHERE model = ? AND id = ?'),
    revokeByGrantId: write('DELETE FROM entries WHERE grant_id = ?'),
  }
}
