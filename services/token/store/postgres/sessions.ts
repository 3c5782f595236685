import type { Cause } from '../../../storage/cause.js'
import { Lookups } from '../../../storage/postgres/lookups.js'
import type { Database, Statement, Transaction } from '../../../storage/postgres/transaction.js'
import type { Hash, SessionRow, TokenStore } from '../token-store.js'
import type { Audit } from './audit.js'
import { lockUnchangedUser } from './locks.js'
import { lockUser, setUserPassword } from './users.js'

type SessionMethods = Pick<TokenStore, 'startSession' | 'findSession' | 'touchSession' | 'endSession' | 'endSessions'>

const insertSession: Statement = {
  name: 'insert_session',
  text: `
    INSERT INTO sessions (session_hash, user_id, started_at_ms, last_seen_at_ms, expires_at_ms)
    VALUES ($1, $2, $3, $3, $4)`,
}
/** By the index sessions_by_user: the sessions that one more pushes out. */
const deleteSurplusSessions: Statement = {
  name: 'delete_surplus_sessions',
  text: `
    DELETE FROM sessions WHERE session_hash = ANY (ARRAY(
      SELECT session_hash FROM sessions WHERE user_id = $1 AND expires_at_ms > $2
      ORDER BY started_at_ms DESC, session_hash DESC OFFSET $3))
    RETURNING 1`,
}
const findSession: Statement = {
  name: 'find_session',
  text: `
    SELECT s.user_id AS "userId", u.username, u.nickname, u.avatar, s.last_seen_at_ms AS "lastSeenAtMs", s.expires_at_ms AS "expiresAtMs"
    FROM sessions s JOIN users u ON u.user_id = s.user_id
    WHERE s.session_hash = $1 AND NOT u.is_disabled`,
}
const touchSession: Statement = {
  name: 'touch_session',
  text: 'UPDATE sessions SET last_seen_at_ms = $2 WHERE session_hash = $1 AND last_seen_at_ms < $2',
}
const deleteSession: Statement = {
  name: 'delete_session',
  text: 'DELETE FROM sessions WHERE session_hash = $1 RETURNING user_id AS "userId"',
}

/** By the index sessions_by_user. */
const deleteSessionsOfUser: Statement = {
  name: 'delete_all_sessions',
  text: 'DELETE FROM sessions WHERE user_id = $1 RETURNING 1',
}

function recordEnd(
  transaction: Transaction,
  audit: Audit,
  userId: string,
  now: number,
  cause: Cause,
  note: string,
): void {
  audit.write(transaction, now, cause, { kind: 'session.ended', userId, note })
}

async function end(
  transaction: Transaction,
  audit: Audit,
  sessionHash: Hash,
  now: number,
  cause: Cause,
  note: string,
): Promise<void> {
  const [ended] = await transaction.write<{ userId: string }>(deleteSession, [sessionHash])
  if (ended) recordEnd(transaction, audit, ended.userId, now, cause, note)
}

/** The user is locked, or made by this transaction. */
export async function beginSession(
  transaction: Transaction,
  audit: Audit,
  session: Omit<Parameters<TokenStore['startSession']>[0], 'passwordHash'>,
  now: number,
  cause: Cause,
  note: string,
): Promise<void> {
  const { sessionHash, userId, expiresAtMs, previousSessionHash, maxLive } = session
  if (previousSessionHash) await end(transaction, audit, previousSessionHash, now, cause, 'signed in again')
  const surplus = await transaction.write(deleteSurplusSessions, [userId, now, maxLive - 1])
  for (const _ of surplus) recordEnd(transaction, audit, userId, now, cause, 'too many sessions')
  transaction.write(insertSession, [sessionHash, userId, now, expiresAtMs])
  audit.write(transaction, now, cause, { kind: 'session.started', userId, note })
}

export function createSessionMethods(database: Database, audit: Audit): SessionMethods {
  const sessions = new Lookups<SessionRow>(database, findSession, ['bytea'])

  return {
    startSession(session, now, cause) {
      return database.causedTransaction(cause, async (transaction) => {
        const { userId, passwordHash, newPasswordHash } = session
        if (!(await transaction.askOne(lockUnchangedUser, [userId, passwordHash]))) return 'refused'
        if (newPasswordHash) transaction.write(setUserPassword, [userId, newPasswordHash])
        await beginSession(transaction, audit, session, now, cause, 'by password')
        return 'started'
      })
    },

    findSession: (sessionHash) => sessions.findOne(sessionHash),

    touchSession(sessionHash, now) {
      return database.transaction(async (transaction) => {
        transaction.write(touchSession, [sessionHash, now])
      })
    },

    endSession(sessionHash, now, cause) {
      return database.causedTransaction(cause, async (transaction) => {
        await end(transaction, audit, sessionHash, now, cause, 'signed out')
      })
    },

    endSessions(userId, now, cause) {
      return database.causedTransaction(cause, async (transaction) => {
        await transaction.ask(lockUser, [userId]) // waits for sign-ins in progress, which hold the row too
        const { length } = await transaction.write(deleteSessionsOfUser, [userId])
        if (length > 0) recordEnd(transaction, audit, userId, now, cause, `all ${length} of them`)
        return length
      })
    },
  }
}
