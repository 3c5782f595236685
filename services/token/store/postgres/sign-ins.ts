import { judgeBeginning, judgeDecision, judgeReturn, MAX_SIGN_INS } from '../../../protocol/sign-in-requests.js'
import type { Cause } from '../../../storage/cause.js'
import type { Database, Statement, Transaction } from '../../../storage/postgres/transaction.js'
import {
  byWordOf,
  type Hash,
  noteOnSubject,
  type Person,
  type SignInRow,
  startBy,
  type TokenStore,
  userFrom,
  type Verifier,
} from '../token-store.js'
import type { Audit } from './audit.js'
import { writeIdentity } from './identities.js'
import { lockUserAndSession } from './locks.js'
import { beginSession } from './sessions.js'
import { changeUser, writeNewUser } from './users.js'

type SignInMethods = Pick<
  TokenStore,
  'beginSignIn' | 'findSignIn' | 'acceptSignIn' | 'rejectSignIn' | 'completeSignIn' | 'removeSignIns'
>

const SIGN_IN = `challenge_hash AS "challengeHash", browser_hash AS "browserHash", source, provider, link_to AS "linkTo", appid,
  redirect_uri AS "redirectUri", return_uri AS "returnUri", restart_uri AS "restartUri", language,
  asks_to_reauthenticate AS "asksToReauthenticate", asks_to_select_account AS "asksToSelectAccount", state,
  expires_at_ms AS "expiresAtMs", subject, nickname, avatar, sid, may_create AS "mayCreate", session_seconds AS "sessionSeconds",
  is_cancelled AS "isCancelled", verifier_expires_at_ms AS "verifierExpiresAtMs"`

type Stored = SignInRow & Pick<Person, 'nickname' | 'avatar' | 'sid' | 'sessionSeconds'>
type Returned = Parameters<TokenStore['completeSignIn']>[0]

/** By the indexes sign_ins_by_expiry and sign_ins_by_source. */
const countSignIns: Statement = {
  name: 'count_sign_ins',
  text: `
    SELECT (SELECT count(*) FROM (SELECT 1 FROM sign_ins WHERE expires_at_ms > $2 LIMIT ${MAX_SIGN_INS.inAll}) a)::int AS "inAll",
      (SELECT count(*) FROM (
        SELECT 1 FROM sign_ins WHERE source = $1 AND expires_at_ms > $2 LIMIT ${MAX_SIGN_INS.ofSource}) s)::int AS "ofSource"`,
}
const insertSignIn: Statement = {
  name: 'insert_sign_in',
  text: `
    INSERT INTO sign_ins (challenge_hash, browser_hash, source, provider, link_to, appid, redirect_uri, return_uri,
      restart_uri, language, asks_to_reauthenticate, asks_to_select_account, expires_at_ms, state, subject, nickname, avatar, sid,
      may_create, session_seconds, is_cancelled, verifier_expires_at_ms)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, 'pending', '', '', '', '', false, 0, false, 0)`,
}
/** By the primary key, as are the next three. */
const findSignIn: Statement = {
  name: 'find_sign_in',
  text: `SELECT ${SIGN_IN} FROM sign_ins WHERE challenge_hash = $1`,
}
const lockSignIn: Statement = { name: 'lock_sign_in', text: `${findSignIn.text} FOR UPDATE` }
const decideSignIn: Statement = {
  name: 'decide_sign_in',
  text: `
    UPDATE sign_ins SET state = $2, subject = $3, nickname = $4, avatar = $5, sid = $6, may_create = $7,
      session_seconds = $8, is_cancelled = $9, verifier_hash = $10, verifier_expires_at_ms = $11
    WHERE challenge_hash = $1`,
}
/** What is left are ids, and that the verifier is used up. */
const endSignIn: Statement = {
  name: 'end_sign_in',
  text: `
    UPDATE sign_ins SET state = CASE state WHEN 'accepted' THEN 'done' ELSE state END, nickname = '', avatar = '',
      verifier_expires_at_ms = 0
    WHERE challenge_hash = $1`,
}
/** By the index sign_ins_by_verifier. */
const lockByVerifier: Statement = {
  name: 'lock_sign_in_by_verifier',
  text: `SELECT ${SIGN_IN} FROM sign_ins WHERE verifier_hash = $1 FOR UPDATE`,
}
/** By the index users_by_external_id. Also a deleted user. */
const lockOwnerOfExternalId: Statement = {
  name: 'lock_owner_of_external_id',
  text: `
    SELECT user_id AS "userId", is_disabled AS "isDisabled" FROM users WHERE external_id = $1 AND external_id <> ''
    FOR NO KEY UPDATE`,
}
/** By the primary keys of both tables. Also a deleted user. */
const lockOwnerOfIdentity: Statement = {
  name: 'lock_owner_of_identity',
  text: `
    SELECT u.user_id AS "userId", u.is_disabled AS "isDisabled"
    FROM identities i JOIN users u ON u.user_id = i.user_id
    WHERE i.provider = $1 AND i.subject = $2
    FOR NO KEY UPDATE OF u`,
}
const useIdentity: Statement = {
  name: 'use_identity',
  text: `
    UPDATE identities SET last_used_at_ms = $3 WHERE provider = $1 AND subject = $2 AND last_used_at_ms < $3`,
}
/** By the index sign_ins_by_expiry. */
const removeSignIns: Statement = {
  name: 'remove_sign_ins',
  text: `
    WITH removed AS (
      DELETE FROM sign_ins WHERE challenge_hash = ANY (ARRAY(
        SELECT challenge_hash FROM sign_ins WHERE expires_at_ms < $1
        ORDER BY expires_at_ms LIMIT $2 FOR UPDATE SKIP LOCKED))
      RETURNING 1
    )
    SELECT count(*)::int AS count FROM removed`,
}

interface Owner {
  readonly userId: string
  readonly isDisabled: boolean
}

/** Whose the identity is, be the user deleted; locked as a sign-in by password locks the user. */
function lockOwner(
  transaction: Transaction,
  { provider, subject }: Pick<Person, 'provider' | 'subject'>,
): Promise<Owner | undefined> {
  return provider === ''
    ? transaction.askOne<Owner>(lockOwnerOfExternalId, [subject])
    : transaction.askOne<Owner>(lockOwnerOfIdentity, [provider, subject])
}

// Rows are locked in the order sign-in, user, session.
export function createSignInMethods(database: Database, audit: Audit): SignInMethods {
  function decide(
    transaction: Transaction,
    challengeHash: Hash,
    state: 'accepted' | 'rejected',
    about: Omit<Person, 'provider' | 'authenticatedAtMs'> & { readonly isCancelled: boolean },
    { verifierHash, verifierExpiresAtMs }: Verifier,
  ): void {
    const { subject, nickname, avatar, sid, mayCreate, sessionSeconds, isCancelled } = about
    const person = [subject, nickname, avatar, sid, mayCreate, sessionSeconds, isCancelled]
    transaction.write(decideSignIn, [challengeHash, state, ...person, verifierHash, verifierExpiresAtMs])
  }

  function contradicted(transaction: Transaction, signIn: SignInRow, subject: string, now: number, cause: Cause): void {
    const note = noteOnSubject(signIn.provider, subject)
    audit.write(transaction, now, cause, { kind: 'sign_in.contradicted', appid: signIn.appid, note })
  }

  async function startSession(
    transaction: Transaction,
    signIn: Stored,
    userId: string,
    returned: Returned,
    now: number,
    cause: Cause,
  ): Promise<number> {
    const { provider, subject, sessionSeconds } = signIn
    if (provider !== '') transaction.write(useIdentity, [provider, subject, now])
    const expiresAtMs = now + sessionSeconds * 1000
    await beginSession(transaction, audit, { ...returned, userId, expiresAtMs }, startBy(signIn), now, cause)
    return expiresAtMs
  }

  return {
    beginSignIn(signIn, now, cause) {
      return database.causedTransaction(cause, async (transaction) => {
        const open = await transaction.askOne<{ inAll: number; ofSource: number }>(countSignIns, [signIn.source, now])
        const verdict = judgeBeginning(open ?? { inAll: 0, ofSource: 0 })
        if (verdict !== 'begun') return verdict
        const { challengeHash, browserHash, source, provider, linkTo, appid, redirectUri, returnUri, restartUri } =
          signIn
        const { language, asksToReauthenticate, asksToSelectAccount, expiresAtMs } = signIn
        const asked = [appid, redirectUri, returnUri, restartUri, language, asksToReauthenticate, asksToSelectAccount]
        transaction.write(insertSignIn, [challengeHash, browserHash, source, provider, linkTo, ...asked, expiresAtMs])
        return verdict
      })
    },

    async findSignIn(challengeHash) {
      return (await database.read<Stored>(findSignIn, [challengeHash]))[0]
    },

    acceptSignIn(challengeHash, person, verifier, now, cause) {
      return database.causedTransaction(cause, async (transaction) => {
        const [signIn, owner] = await Promise.all([
          transaction.askOne<Stored>(lockSignIn, [challengeHash]),
          lockOwner(transaction, person),
        ])
        const verdict = judgeDecision(signIn, person, owner?.isDisabled ?? false, now)
        if (signIn && verdict === 'decided') {
          decide(transaction, challengeHash, 'accepted', { ...person, isCancelled: false }, verifier)
          const note = noteOnSubject(person.provider, person.subject)
          audit.write(transaction, now, cause, { kind: 'sign_in.accepted', appid: signIn.appid, note })
        }
        if (signIn && verdict === 'decided_otherwise') contradicted(transaction, signIn, person.subject, now, cause)
        return { verdict, signIn }
      })
    },

    rejectSignIn(challengeHash, { provider, isCancelled }, verifier, now, cause) {
      return database.causedTransaction(cause, async (transaction) => {
        const signIn = await transaction.askOne<Stored>(lockSignIn, [challengeHash])
        const verdict = judgeDecision(signIn, { provider, subject: '', authenticatedAtMs: 0 }, false, now)
        if (signIn && verdict === 'decided') {
          const nobody = { subject: '', nickname: '', avatar: '', sid: '', sessionSeconds: 0, mayCreate: false }
          decide(transaction, challengeHash, 'rejected', { ...nobody, isCancelled }, verifier)
          const note = isCancelled ? 'cancelled' : 'not allowed'
          audit.write(transaction, now, cause, { kind: 'sign_in.rejected', appid: signIn.appid, note })
        }
        if (signIn && verdict === 'decided_otherwise') contradicted(transaction, signIn, '', now, cause)
        return { verdict, signIn }
      })
    },

    completeSignIn(returned, now, cause) {
      return database.causedTransaction(cause, async (transaction) => {
        const signIn = await transaction.askOne<Stored>(lockByVerifier, [returned.verifierHash])
        const [owner, linked] = await Promise.all([
          signIn && lockOwner(transaction, signIn),
          signIn && transaction.askOne(lockUserAndSession, [signIn.linkTo, returned.previousSessionHash ?? null]),
        ])
        const isSameBrowser = signIn !== undefined && Buffer.compare(signIn.browserHash, returned.browserHash) === 0
        const verdict = judgeReturn(signIn, { isSameBrowser, owner, isLinkedToHere: linked !== undefined }, now)
        if (!signIn || verdict === 'unknown' || verdict === 'other_browser')
          return { verdict, signIn, sessionExpiresAtMs: 0 }
        transaction.write(endSignIn, [signIn.challengeHash])
        const { provider, subject, appid, nickname, avatar } = signIn
        const by = byWordOf(provider, cause)
        let sessionExpiresAtMs = 0
        if (verdict === 'created') {
          const user = userFrom(signIn, returned.newUserId, now)
          writeNewUser(transaction, audit, user, by)
          if (provider !== '') writeIdentity(transaction, audit, { provider, subject, userId: user.userId }, now, by)
          sessionExpiresAtMs = await startSession(transaction, signIn, user.userId, returned, now, by)
        } else if (verdict === 'signed_in' && owner) {
          const change = { ...(nickname && { nickname }), ...(avatar && { avatar }) }
          await changeUser(transaction, audit, owner.userId, change, now, by)
          sessionExpiresAtMs = await startSession(transaction, signIn, owner.userId, returned, now, by)
        } else if (verdict === 'linked') {
          if (!owner) writeIdentity(transaction, audit, { provider, subject, userId: signIn.linkTo }, now, by)
        } else if (verdict !== 'expired' && verdict !== 'rejected') {
          const note = `${verdict} ${noteOnSubject(provider, subject)}`
          const userId = owner?.userId ?? signIn.linkTo
          audit.write(transaction, now, by, { kind: 'sign_in.refused', appid, userId, note })
        }
        return { verdict, signIn, sessionExpiresAtMs }
      })
    },

    removeSignIns({ expiredBeforeMs, limit }) {
      return database.transaction(async (transaction) => {
        const [removed] = await transaction.write<{ count: number }>(removeSignIns, [expiredBeforeMs, limit])
        return removed?.count ?? 0
      })
    },
  }
}
