import type { Connection } from '../../../sqlite/open.js'
import type { Cause, Hash, NewCode, Redemption, RedemptionResult } from '../token-store.js'
import type { IsLiveApp } from './apps.js'
import type { RecordEvent } from './audit.js'
import type { CreateGrant, EndGrant } from './grants.js'
import type { CheckApp } from './secrets.js'
import type { IsLiveUser } from './users.js'

interface CodeRecord {
  readonly appid: string
  readonly userId: string
  readonly redirectUri: string
  readonly scope: string
  readonly expiresAtMs: number
  readonly usedAtMs: number | null
  readonly grantId: string | null
  /** 0 or 1. */
  readonly isUserDisabled: number
  /** The user's for this app, if it has seen the user before. */
  readonly openid: string | null
}

/** Removes unused codes: what revoking and disabling do to codes under way. */
export function unusedCodeRemovers(db: Connection) {
  const ofApp = db.prepare<[string]>(
    // Index codes_unused.
    'DELETE FROM codes WHERE used_at_ms IS NULL AND appid = ?',
  )
  const ofUser = db.prepare<[string]>(
    // Index codes_unused, once for every app: apps are few, and an index by user would cost every code issued.
    'DELETE FROM codes WHERE used_at_ms IS NULL AND appid IN (SELECT appid FROM apps) AND user_id = ?',
  )
  const ofAppAndUser = db.prepare<[string, string]>(
    // Index codes_unused.
    'DELETE FROM codes WHERE used_at_ms IS NULL AND appid = ? AND user_id = ?',
  )
  return {
    ofApp(appid: string): void {
      ofApp.run(appid)
    },
    ofUser(userId: string): void {
      ofUser.run(userId)
    },
    ofAppAndUser(appid: string, userId: string): void {
      ofAppAndUser.run(appid, userId)
    },
  }
}

type FindCode = (codeHash: Hash) => CodeRecord | undefined

function codeFinder(db: Connection): FindCode {
  const find = db.prepare<[Hash], CodeRecord>(
    // Primary keys of all three tables.
    `SELECT c.appid, c.user_id AS userId, c.redirect_uri AS redirectUri, c.scope, c.expires_at_ms AS expiresAtMs,
       c.used_at_ms AS usedAtMs, c.grant_id AS grantId, u.is_disabled AS isUserDisabled, o.openid
     FROM codes c JOIN users u ON u.user_id = c.user_id
       LEFT JOIN openids o ON o.appid = c.appid AND o.user_id = c.user_id
     WHERE c.code_hash = +?`,
  )
  return (codeHash) => find.get(codeHash)
}

interface CodeDeps {
  readonly record: RecordEvent
  readonly isLiveApp: IsLiveApp
  readonly checkApp: CheckApp
  readonly isLiveUser: IsLiveUser
  readonly createGrant: CreateGrant
  readonly endGrant: EndGrant
}

export function codeWrites(db: Connection, deps: CodeDeps) {
  const findCode = codeFinder(db)
  return { ...issueWrites(db, findCode, deps), ...redeemWrites(db, findCode, deps) }
}

function issueWrites(db: Connection, findCode: FindCode, { record, isLiveApp, isLiveUser }: CodeDeps) {
  const removeSurplus = db.prepare<[{ appid: string; userId: string; now: number; keep: number }]>(
    // Index codes_unused, backwards; then the primary key.
    `DELETE FROM codes WHERE code_hash IN (
       SELECT code_hash FROM codes
       WHERE used_at_ms IS NULL AND appid = +:appid AND user_id = +:userId AND expires_at_ms > :now
       ORDER BY issued_at_ms DESC, code_hash DESC LIMIT -1 OFFSET :keep)`,
  )
  const insert = db.prepare<[Omit<NewCode, 'maxLive'> & { readonly now: number }]>(
    `INSERT INTO codes (code_hash, appid, user_id, redirect_uri, scope, issued_at_ms, expires_at_ms)
     VALUES (:codeHash, :appid, :userId, :redirectUri, :scope, :now, :expiresAtMs)`,
  )

  return {
    issueCode(args: {
      code: NewCode
      now: number
      cause: Cause
    }): 'issued' | 'exists_live' | 'exists_ended' | 'refused' {
      const { code, now, cause } = args
      const { codeHash, appid, userId, redirectUri, scope, expiresAtMs } = code
      if (!isLiveApp(appid) || !isLiveUser(userId)) return 'refused'
      const existing = findCode(codeHash)
      if (existing) return existing.usedAtMs === null && now < existing.expiresAtMs ? 'exists_live' : 'exists_ended'
      removeSurplus.run({ appid, userId, now, keep: code.maxLive - 1 })
      insert.run({ codeHash, appid, userId, redirectUri, scope, expiresAtMs, now })
      record({ kind: 'code.issued', now, cause, appid, userId })
      return 'issued'
    },
  }
}

const refused: RedemptionResult = { kind: 'refused', replay: 'none' }

function redeemWrites(db: Connection, findCode: FindCode, deps: CodeDeps) {
  const { record, checkApp, createGrant, endGrant } = deps
  const markUsed = db.prepare<[number, string, Hash]>(
    // Primary key.
    'UPDATE codes SET used_at_ms = ?, grant_id = ? WHERE code_hash = ? AND used_at_ms IS NULL',
  )

  /** A replay is forgiven before the grace ends, ends the grant before the code expires, and does nothing later. */
  function refuseReplay(
    code: CodeRecord,
    times: { usedAtMs: number; graceMs: number; now: number },
    cause: Cause,
  ): RedemptionResult {
    const { appid, userId } = code
    const { usedAtMs, graceMs, now } = times
    const grantId = code.grantId ?? ''
    const note = (text: string) => record({ kind: 'code.replayed', now, cause, appid, userId, grantId, note: text })
    if (now < usedAtMs + graceMs) {
      note('within the grace: forgiven')
      return { kind: 'refused', replay: 'forgiven' }
    }
    if (now >= code.expiresAtMs) {
      note('after its expiry: without effect')
      return refused
    }
    note('ends the grant')
    endGrant(grantId, now, cause, 'its code was replayed')
    return { kind: 'refused', replay: 'revoked_grant' }
  }

  return {
    redeemCode(args: { redemption: Redemption; now: number; cause: Cause }): RedemptionResult {
      const { redemption, now, cause } = args
      const { codeHash, appid, redirectUri, grantId, replayGraceMs } = redemption
      const app = checkApp(appid, redemption.secretId, now)
      if (app !== 'good') return { kind: app }
      const code = findCode(codeHash)
      if (code?.appid !== appid) return refused
      const { userId, usedAtMs, isUserDisabled } = code
      if (usedAtMs !== null) return refuseReplay(code, { usedAtMs, graceMs: replayGraceMs, now }, cause)
      if (now >= code.expiresAtMs) return refused
      if (redirectUri !== undefined && redirectUri !== code.redirectUri) return refused
      if (isUserDisabled === 1) return refused

      const openid = createGrant(redemption, code, now, cause)
      markUsed.run(now, grantId, codeHash)
      record({ kind: 'code.exchanged', now, cause, appid, userId, grantId })
      return { kind: 'redeemed', openid }
    },
  }
}
