import { type Open, surplusOf } from '../../../protocol/surplus.js'
import type { Cause } from '../../../storage/cause.js'
import type { Connection } from '../../../storage/sqlite/open.js'
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
import type { RecordEvent } from './audit.js'
import { type IsUnchangedUser, passwordHashSetter } from './users.js'

type NewSession = Parameters<TokenStore['startSession']>[0]

export function sessionReads(db: Connection) {
  const find = db.prepare<[Hash], SessionRow>(
    // Primary keys of sessions and users.
    `SELECT u.user_id AS userId, u.username, u.nickname, u.avatar, s.way, s.provider, s.started_at_ms AS startedAtMs,
       s.last_seen_at_ms AS lastSeenAtMs, s.expires_at_ms AS expiresAtMs
     FROM sessions s JOIN users u ON u.user_id = s.user_id
     WHERE s.session_hash = +? AND u.is_disabled = 0`,
  )
  const list = db.prepare<[string], OpenSession>(
    // Index sessions_by_user.
    `SELECT session_hash AS sessionHash, way, provider, browser, started_at_ms AS startedAtMs, last_seen_at_ms AS lastSeenAtMs,
       expires_at_ms AS expiresAtMs
     FROM sessions WHERE user_id = ? ORDER BY started_at_ms DESC, session_hash DESC`,
  )
  return {
    listSessions: (userId: string) => list.all(userId),
    findSession: (sessionHash: Hash) => find.get(sessionHash),
  }
}

export type IsOpenSession = (sessionHash: Hash, userId: string) => boolean

/** Whether the session is open, and of this user, who is not disabled; checked inside the transaction. */
export function openSessionFinder(db: Connection): IsOpenSession {
  const find = db.prepare<[Hash, string], 1>(
    // Primary keys of sessions and users.
    `SELECT 1 FROM sessions s JOIN users u ON u.user_id = s.user_id
     WHERE s.session_hash = +? AND s.user_id = ? AND u.is_disabled = 0`,
  )
  return (sessionHash, userId) => find.get(sessionHash, userId) !== undefined
}

export function sessionWrites(db: Connection, record: RecordEvent, isUnchangedUser: IsUnchangedUser) {
  const insert = db.prepare<
    [SessionStart & Pick<NewSession, 'sessionHash' | 'userId' | 'browser' | 'expiresAtMs'> & { now: number }]
  >(
    `INSERT INTO sessions
       (session_hash, user_id, way, provider, subject, sid, browser, started_at_ms, last_seen_at_ms, expires_at_ms)
     VALUES (:sessionHash, :userId, :way, :provider, :subject, :sid, :browser, :now, :now, :expiresAtMs)`,
  )
  const findOpen = db.prepare<[{ userId: string; max: number }], Open & { sessionHash: Hash }>(
    // Index sessions_by_user; then the primary key, of users with many.
    `SELECT session_hash AS sessionHash, started_at_ms AS beganAtMs, expires_at_ms AS expiresAtMs FROM sessions
     WHERE (SELECT count(*) FROM sessions WHERE user_id = :userId) >= :max AND user_id = :userId`,
  )
  const setPassword = passwordHashSetter(db)
  const touch = db.prepare<[{ sessionHash: Hash; now: number }]>(
    // Primary key.
    'UPDATE sessions SET last_seen_at_ms = :now WHERE session_hash = :sessionHash AND last_seen_at_ms < :now',
  )
  const remove = db.prepare<[Hash], { userId: string }>(
    // Primary key.
    'DELETE FROM sessions WHERE session_hash = ? RETURNING user_id AS userId',
  )

  const removeAll = db.prepare<[{ userId: string; allBut: Hash | null }]>(
    // Index sessions_by_user.
    'DELETE FROM sessions WHERE user_id = :userId AND session_hash IS NOT :allBut',
  )
  const removeOne = db.prepare<[Hash, string]>(
    // Primary key.
    'DELETE FROM sessions WHERE session_hash = ? AND user_id = ?',
  )
  const removeOfSid = db.prepare<[string, string], { userId: string }>(
    // Index sessions_by_sid.
    `DELETE FROM sessions WHERE provider = ? AND sid = ? AND sid <> '' RETURNING user_id AS userId`,
  )
  const removeOfSubject = db.prepare<[{ provider: string; subject: string; sid: string }], { userId: string }>(
    // Index sessions_by_subject.
    `DELETE FROM sessions
     WHERE provider = :provider AND provider <> '' AND subject = :subject AND (sid = '' OR :sid = '')
     RETURNING user_id AS userId`,
  )
  const endSignIns = db.prepare<[{ provider: string; subject: string; sid: string }]>(
    // Index sign_ins_by_subject.
    `UPDATE sign_ins SET verifier_expires_at_ms = 0
     WHERE provider = :provider AND provider <> '' AND state = 'accepted'
       AND (sid = :sid AND sid <> '' OR subject = :subject AND (sid = '' OR :sid = ''))`,
  )
  const endSignInsOfUser = db.prepare<[{ userId: string }]>(
    // Indexes sign_ins_by_subject and identities_by_user, and the primary key of users.
    `UPDATE sign_ins SET verifier_expires_at_ms = 0
     WHERE challenge_hash IN (
       SELECT challenge_hash FROM identities i JOIN sign_ins s USING (provider, subject)
       WHERE s.state = 'accepted' AND i.user_id = :userId
       UNION ALL SELECT challenge_hash FROM users u JOIN sign_ins s ON s.provider = '' AND s.subject = u.external_id
       WHERE s.state = 'accepted' AND u.user_id = :userId AND u.external_id <> '')`,
  )

  function end(sessionHash: Hash, now: number, cause: Cause, note: string): void {
    const ended = remove.get(sessionHash)
    if (ended) record({ kind: 'session.ended', now, cause, userId: ended.userId, note })
  }

  function begin(session: Omit<NewSession, 'passwordHash'>, start: SessionStart, now: number, cause: Cause): void {
    const { sessionHash, userId, browser, expiresAtMs, maxLive: max } = session
    if (session.previousSessionHash) end(session.previousSessionHash, now, cause, 'signed in again')
    for (const surplus of surplusOf(findOpen.all({ userId, max }), max, now)) {
      end(surplus.sessionHash, now, cause, 'too many sessions')
    }
    insert.run({ ...start, sessionHash, userId, browser, now, expiresAtMs })
    record({ kind: 'session.started', now, cause, userId, note: noteOnStart(start) })
  }

  return {
    beginSession: begin,

    startSession(session: NewSession, now: number, cause: Cause): 'started' | 'refused' {
      if (!isUnchangedUser(session.userId, session.passwordHash)) return 'refused'
      if (session.newPasswordHash) setPassword.run(session.newPasswordHash, session.userId)
      begin(session, BY_PASSWORD, now, cause)
      return 'started'
    },

    touchSession(sessionHash: Hash, now: number): void {
      touch.run({ sessionHash, now })
    },

    endSession(sessionHash: Hash, now: number, cause: Cause): void {
      end(sessionHash, now, cause, 'signed out')
    },

    endSessions(which: Parameters<TokenStore['endSessions']>[0], now: number, cause: Cause): number {
      const { userId, only, allBut = null } = which
      if (!only) endSignInsOfUser.run({ userId })
      const { changes } = only ? removeOne.run(only, userId) : removeAll.run({ userId, allBut })
      if (changes > 0) record({ kind: 'session.ended', now, cause, userId, note: noteOnEnd(changes, which) })
      return changes
    },

    endProviderSessions(of: Parameters<TokenStore['endProviderSessions']>[0], now: number, cause: Cause): number {
      endSignIns.run(of)
      const ended = [...removeOfSid.all(of.provider, of.sid), ...removeOfSubject.all(of)]
      for (const { userId } of ended) {
        record({ kind: 'session.ended', now, cause, userId, note: `signed out at ${of.provider}` })
      }
      return ended.length
    },
  }
}
