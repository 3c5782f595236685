import { type Open, surplusOf } from '../../../protocol/surplus.js'
import type { Cause } from '../../../storage/cause.js'
import type { Database, Statement, Transaction } from '../../../storage/postgres/transaction.js'
import {
  BY_PASSWORD,
  type Hash,
  noteOnEnd,
  noteOnStart,
  type OpenSession,
  type SessionRow,
  type SessionStart,
  type TokenStore,
} from '../token-store.js'
import type { Audit } from './audit.js'
import { lockUnchangedUser } from './locks.js'
import { lockUser, setUserPassword } from './users.js'

type SessionMethods = Pick<
  TokenStore,
  | 'startSession'
  | 'findSession'
  | 'touchSession'
  | 'endSession'
  | 'endSessions'
  | 'endProviderSessions'
  | 'listSessions'
>

const insertSession: Statement = {
  name: 'insert_session',
  text: `
    INSERT INTO sessions
      (session_hash, user_id, way, provider, subject, sid, browser, started_at_ms, last_seen_at_ms, expires_at_ms)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $8, $9)`,
}
/** By the index sessions_by_user. Most users have fewer than $2. */
const findOpenSessions: Statement = {
  name: 'find_open_sessions',
  text: `
    SELECT session_hash AS "sessionHash", started_at_ms AS "beganAtMs", expires_at_ms AS "expiresAtMs" FROM sessions
    WHERE user_id = $1 AND (SELECT count(*) FROM sessions WHERE user_id = $1) >= $2`,
}
const findSession: Statement = {
  name: 'find_session',
  text: `
    SELECT s.user_id AS "userId", u.username, u.nickname, u.avatar, s.way, s.provider, s.started_at_ms AS "startedAtMs",
      s.last_seen_at_ms AS "lastSeenAtMs", s.expires_at_ms AS "expiresAtMs"
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

/** By the index sessions_by_user, as is the next one. */
const listSessions: Statement = {
  name: 'list_sessions',
  text: `
    SELECT session_hash AS "sessionHash", way, provider, browser, started_at_ms AS "startedAtMs",
      last_seen_at_ms AS "lastSeenAtMs", expires_at_ms AS "expiresAtMs"
    FROM sessions WHERE user_id = $1 ORDER BY started_at_ms DESC, session_hash DESC`,
}
/** $2: the one that stays, if it is not null. */
const deleteSessionsOfUser: Statement = {
  name: 'delete_all_sessions',
  text: 'DELETE FROM sessions WHERE user_id = $1 AND session_hash IS DISTINCT FROM $2 RETURNING 1',
}
const deleteSessionOfUser: Statement = {
  name: 'delete_session_of_user',
  text: 'DELETE FROM sessions WHERE user_id = $1 AND session_hash = $2 RETURNING 1',
}
/** By the index sessions_by_sid. */
const deleteSessionsOfSid: Statement = {
  name: 'delete_sessions_of_sid',
  text: `
    DELETE FROM sessions WHERE provider = $1 AND sid = $2 AND sid <> '' RETURNING user_id AS "userId"`,
}
/** By the index sessions_by_subject. */
const deleteSessionsOfSubject: Statement = {
  name: 'delete_sessions_of_subject',
  text: `
    DELETE FROM sessions WHERE provider = $1 AND provider <> '' AND subject = $2 AND (sid = '' OR $3 = '')
    RETURNING user_id AS "userId"`,
}
/**
 * By the index sign_ins_by_subject. What is accepted will begin a session, and what is about to is locked: waited for, it has
 * begun one that the statements after this one see.
 */
const endSignInsOfProvider: Statement = {
  name: 'end_sign_ins_of_provider',
  text: `
    UPDATE sign_ins SET verifier_expires_at_ms = 0
    WHERE provider = $1 AND provider <> '' AND state = 'accepted'
      AND (sid = $3 AND sid <> '' OR subject = $2 AND (sid = '' OR $3 = ''))`,
}
/** The same of a user, however they are known elsewhere. */
const endSignInsOfUser: Statement = {
  name: 'end_sign_ins_of_user',
  text: `
    UPDATE sign_ins SET verifier_expires_at_ms = 0
    WHERE state = 'accepted' AND (provider, subject) IN (
      SELECT provider, subject FROM identities WHERE user_id = $1
      UNION ALL SELECT '', external_id FROM users WHERE user_id = $1 AND external_id <> '')`,
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
  start: SessionStart,
  now: number,
  cause: Cause,
): Promise<void> {
  const { sessionHash, userId, browser, expiresAtMs, previousSessionHash, maxLive } = session
  if (previousSessionHash) await end(transaction, audit, previousSessionHash, now, cause, 'signed in again')
  const open = await transaction.ask<Open & { readonly sessionHash: Hash }>(findOpenSessions, [userId, maxLive])
  for (const surplus of surplusOf(open, maxLive, now)) {
    await end(transaction, audit, surplus.sessionHash, now, cause, 'too many sessions')
  }
  const { way, provider, subject, sid } = start
  transaction.write(insertSession, [sessionHash, userId, way, provider, subject, sid, browser, now, expiresAtMs])
  audit.write(transaction, now, cause, { kind: 'session.started', userId, note: noteOnStart(start) })
}

export function createSessionMethods(database: Database, audit: Audit): SessionMethods {
  return {
    startSession(session, now, cause) {
      return database.causedTransaction(cause, async (transaction) => {
        const { userId, passwordHash, newPasswordHash } = session
        if (!(await transaction.askOne(lockUnchangedUser, [userId, passwordHash]))) return 'refused'
        if (newPasswordHash) transaction.write(setUserPassword, [userId, newPasswordHash])
        await beginSession(transaction, audit, session, BY_PASSWORD, now, cause)
        return 'started'
      })
    },

    findSession: (sessionHash) => database.readOne<SessionRow>(findSession, [sessionHash]),

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

    endSessions(which, now, cause) {
      const { userId, only, allBut = null } = which
      return database.causedTransaction(cause, async (transaction) => {
        if (!only) transaction.write(endSignInsOfUser, [userId])
        await transaction.ask(lockUser, [userId]) // waits for sign-ins in progress, which hold the row too
        const { length } = only
          ? await transaction.write(deleteSessionOfUser, [userId, only])
          : await transaction.write(deleteSessionsOfUser, [userId, allBut])
        if (length > 0) recordEnd(transaction, audit, userId, now, cause, noteOnEnd(length, which))
        return length
      })
    },

    endProviderSessions({ provider, subject, sid }, now, cause) {
      return database.causedTransaction(cause, async (transaction) => {
        transaction.write(endSignInsOfProvider, [provider, subject, sid])
        const ofSid = await transaction.write<{ userId: string }>(deleteSessionsOfSid, [provider, sid])
        const ofSubject = await transaction.write<{ userId: string }>(deleteSessionsOfSubject, [provider, subject, sid])
        const ended = [...ofSid, ...ofSubject]
        for (const { userId } of ended) recordEnd(transaction, audit, userId, now, cause, `signed out at ${provider}`)
        return ended.length
      })
    },

    listSessions: (userId) => database.read<OpenSession>(listSessions, [userId]),
  }
}
