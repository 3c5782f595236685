import { openDatabase } from './database.js'

const SCHEMA = `
  CREATE TABLE entries (
    model TEXT NOT NULL, id TEXT NOT NULL, payload TEXT NOT NULL, grant_id TEXT, user_code TEXT, uid TEXT,
    consumed_at BIGINT, expires_at BIGINT, PRIMARY KEY (model, id))
    WITH (fillfactor = 75); -- room for a used code to be written in its page
  CREATE INDEX entries_by_grant ON entries (grant_id) WHERE grant_id IS NOT NULL;
  CREATE INDEX entries_by_uid ON entries (uid) WHERE uid IS NOT NULL;
  CREATE INDEX entries_by_user_code ON entries (user_code) WHERE user_code IS NOT NULL;`

const COLUMNS = 'payload, consumed_at AS "consumedAt", expires_at AS "expiresAt"'

export async function open(url) {
  const { read, write, together } = await openDatabase(url, SCHEMA)
  return {
    together,
    upsert: write(
      `INSERT INTO entries (model, id, payload, grant_id, user_code, uid, expires_at)
       VALUES ($1, $2, $3, $4, $5, $6, $7)
       ON CONFLICT (model, id) DO UPDATE SET payload = excluded.payload, grant_id = excluded.grant_id,
         user_code = excluded.user_code, uid = excluded.uid, expires_at = excluded.expires_at`,
    ),
    find: read(`SELECT ${COLUMNS} FROM entries WHERE model = $1 AND id = $2`),
    findByUid: read(`SELECT ${COLUMNS} FROM entries WHERE model = $1 AND uid = $2`),
    findByUserCode: read(`SELECT ${COLUMNS} FROM entries WHERE model = $1 AND user_code = $2`),
    consume: write('UPDATE entries SET consumed_at = $1 WHERE model = $2 AND id = $3'),
    destroy: write('DELETE FROM entries WHERE model = $1 AND id = $2'),
    revokeByGrantId: write('DELETE FROM entries WHERE grant_id = $1'),
  }
}
