import {
  judgeBeginning,
  judgeDecision,
  judgeReturn,
  MAX_SIGN_INS,
  type SignInState,
} from '../../../protocol/sign-in-requests.js'
import type { Cause } from '../../../storage/cause.js'
import type { Connection } from '../../../storage/sqlite/open.js'
import {
  byWordOf,
  type Hash,
  type NewSignIn,
  noteOnSubject,
  type Person,
  type SessionStart,
  type SignInDecision,
  type SignInReturn,
  type SignInRow,
  startBy,
  type TokenStore,
  type UserRow,
  userFrom,
  type Verifier,
} from '../token-store.js'
import type { RecordEvent } from './audit.js'
import { ownerStatement } from './identities.js'
import type { IsOpenSession } from './sessions.js'

const COLUMNS = `challenge_hash AS challengeHash, browser_hash AS browserHash, source, provider, link_to AS linkTo, appid,
  redirect_uri AS redirectUri, return_uri AS returnUri, restart_uri AS restartUri, language,
  asks_to_reauthenticate AS asksToReauthenticate, asks_to_select_account AS asksToSelectAccount, state,
  expires_at_ms AS expiresAtMs, subject, nickname, avatar, sid, may_create AS mayCreate, session_seconds AS sessionSeconds,
  is_cancelled AS isCancelled, verifier_expires_at_ms AS verifierExpiresAtMs`

const FLAGS = ['asksToReauthenticate', 'asksToSelectAccount', 'mayCreate', 'isCancelled'] as const
type Stored = SignInRow & Pick<Person, 'nickname' | 'avatar' | 'sid' | 'sessionSeconds'>
/** Stored with 0 and 1 for false and true. */
type SignInRecord = Omit<Stored, (typeof FLAGS)[number]> & { readonly [Flag in (typeof FLAGS)[number]]: number }

type Returned = Parameters<TokenStore['completeSignIn']>[0]
type Owner = { readonly userId: string; readonly isDisabled: boolean }

export function signInReads(db: Connection) {
  const find = db.prepare<[Hash], SignInRecord>(
    // Primary key.
    `SELECT ${COLUMNS} FROM sign_ins WHERE challenge_hash = ?`,
  )
  return {
    findSignIn: (challengeHash: Hash): SignInRow | undefined => toSignIn(find.get(challengeHash)),
  }
}

/** What completing a sign-in does besides, inside its transaction. */
export interface SignInEffects {
  readonly isOpenSession: IsOpenSession
  readonly createUser: (user: UserRow, cause: Cause) => unknown
  readonly updateUser: TokenStoreWrite<'updateUser'>
  readonly linkIdentity: TokenStoreWrite<'linkIdentity'>
  readonly useIdentity: (identity: { provider: string; subject: string }, now: number) => void
  /** Ends the session before and the surplus ones, and starts this one. */
  readonly beginSession: (
    session: Pick<Returned, 'sessionHash' | 'previousSessionHash' | 'maxLive' | 'browser'> & {
      readonly userId: string
      readonly expiresAtMs: number
    },
    start: SessionStart,
    now: number,
    cause: Cause,
  ) => void
}
type TokenStoreWrite<Name extends 'updateUser' | 'linkIdentity'> = (...args: Parameters<TokenStore[Name]>) => unknown

export function signInWrites(db: Connection, record: RecordEvent, effects: SignInEffects) {
  const { findSignIn } = signInReads(db)
  const findByVerifier = db.prepare<[Hash], SignInRecord>(
    // Index sign_ins_by_verifier.
    `SELECT ${COLUMNS} FROM sign_ins WHERE verifier_hash = ?`,
  )
  const countAll = db
    .prepare<[{ now: number; max: number }], number>(
      // Index sign_ins_by_expiry.
      'SELECT count(*) FROM (SELECT 1 FROM sign_ins WHERE expires_at_ms > :now LIMIT :max)',
    )
    .pluck()
  const countOfSource = db
    .prepare<[{ source: string; now: number; max: number }], number>(
      // Index sign_ins_by_source.
      'SELECT count(*) FROM (SELECT 1 FROM sign_ins WHERE source = :source AND expires_at_ms > :now LIMIT :max)',
    )
    .pluck()
  const insert = db.prepare<[Record<string, unknown>]>(
    `INSERT INTO sign_ins (challenge_hash, browser_hash, source, provider, link_to, appid, redirect_uri, return_uri,
       restart_uri, language, asks_to_reauthenticate, asks_to_select_account, state, expires_at_ms, subject, nickname, avatar, sid,
       may_create, session_seconds, is_cancelled, verifier_expires_at_ms)
     VALUES (:challengeHash, :browserHash, :source, :provider, :linkTo, :appid, :redirectUri, :returnUri, :restartUri,
       :language, :asksToReauthenticate, :asksToSelectAccount, 'pending', :expiresAtMs, '', '', '', '', 0, 0, 0, 0)`,
  )
  const decide = db.prepare<
    [
      Pick<Person, 'subject' | 'nickname' | 'avatar' | 'sid' | 'sessionSeconds'> &
        Verifier & { challengeHash: Hash; state: SignInState; mayCreate: number; isCancelled: number },
    ]
  >(
    // Primary key.
    `UPDATE sign_ins SET state = :state, subject = :subject, nickname = :nickname, avatar = :avatar, sid = :sid, may_create = :mayCreate,
       session_seconds = :sessionSeconds, is_cancelled = :isCancelled, verifier_hash = :verifierHash,
       verifier_expires_at_ms = :verifierExpiresAtMs
     WHERE challenge_hash = :challengeHash`,
  )
  const end = db.prepare<[Hash]>(
    // Primary key. What is left are ids, and that the verifier is used up.
    `UPDATE sign_ins SET state = iif(state = 'accepted', 'done', state), nickname = '', avatar = '', verifier_expires_at_ms = 0
     WHERE challenge_hash = ?`,
  )
  const remove = db.prepare<[number, number]>(
    // Index sign_ins_by_expiry.
    'DELETE FROM sign_ins WHERE challenge_hash IN (SELECT challenge_hash FROM sign_ins WHERE expires_at_ms < ? LIMIT ?)',
  )
  const findByExternalId = db.prepare<[string], { userId: string; isDisabled: number }>(
    // Index users_by_external_id.
    `SELECT user_id AS userId, is_disabled AS isDisabled FROM users WHERE external_id = ? AND external_id <> ''`,
  )
  const findByIdentity = ownerStatement(db)

  /** Whose the identity is, be the user deleted. */
  function ownerOf({ provider, subject }: { provider: string; subject: string }): Owner | undefined {
    const owner = provider === '' ? findByExternalId.get(subject) : findByIdentity.get(provider, subject)
    return owner && { userId: owner.userId, isDisabled: owner.isDisabled === 1 }
  }

  function contradicted(signIn: SignInRow, subject: string, now: number, cause: Cause): void {
    record({
      kind: 'sign_in.contradicted',
      now,
      cause,
      appid: signIn.appid,
      note: noteOnSubject(signIn.provider, subject),
    })
  }

  function signedIn(signIn: Stored, userId: string, returned: Returned, now: number, cause: Cause): number {
    const { provider, subject, nickname, avatar } = signIn
    if (provider !== '') effects.useIdentity({ provider, subject }, now)
    effects.updateUser(userId, { ...(nickname && { nickname }), ...(avatar && { avatar }) }, now, cause)
    const expiresAtMs = now + signIn.sessionSeconds * 1000
    effects.beginSession({ ...returned, userId, expiresAtMs }, startBy(signIn), now, cause)
    return expiresAtMs
  }

  return {
    removeSignIns: ({ expiredBeforeMs, limit }: Parameters<TokenStore['removeSignIns']>[0]): number =>
      remove.run(expiredBeforeMs, limit).changes,

    beginSignIn(signIn: NewSignIn, now: number, _cause: Cause): 'begun' | 'too_many' {
      const { source } = signIn
      const open = {
        inAll: countAll.get({ now, max: MAX_SIGN_INS.inAll }) ?? 0,
        ofSource: countOfSource.get({ source, now, max: MAX_SIGN_INS.ofSource }) ?? 0,
      }
      const verdict = judgeBeginning(open)
      if (verdict === 'begun') {
        const { asksToReauthenticate, asksToSelectAccount } = signIn
        insert.run({
          ...signIn,
          asksToReauthenticate: Number(asksToReauthenticate),
          asksToSelectAccount: Number(asksToSelectAccount),
        })
      }
      return verdict
    },

    acceptSignIn(challengeHash: Hash, person: Person, verifier: Verifier, now: number, cause: Cause): SignInDecision {
      const signIn = findSignIn(challengeHash)
      const verdict = judgeDecision(signIn, person, ownerOf(person)?.isDisabled ?? false, now)
      if (signIn && verdict === 'decided') {
        const { subject, nickname, avatar, sid, sessionSeconds, provider } = person
        const decided = {
          subject,
          nickname,
          avatar,
          sid,
          sessionSeconds,
          mayCreate: Number(person.mayCreate),
          isCancelled: 0,
        }
        decide.run({ challengeHash, state: 'accepted', ...decided, ...verifier })
        record({ kind: 'sign_in.accepted', now, cause, appid: signIn.appid, note: noteOnSubject(provider, subject) })
      }
      if (signIn && verdict === 'decided_otherwise') contradicted(signIn, person.subject, now, cause)
      return { verdict, signIn }
    },

    rejectSignIn(
      challengeHash: Hash,
      { provider, isCancelled }: { readonly provider: string; readonly isCancelled: boolean },
      verifier: Verifier,
      now: number,
      cause: Cause,
    ): SignInDecision {
      const signIn = findSignIn(challengeHash)
      const verdict = judgeDecision(signIn, { provider, subject: '', authenticatedAtMs: 0 }, false, now)
      if (signIn && verdict === 'decided') {
        const nobody = { subject: '', nickname: '', avatar: '', sid: '', sessionSeconds: 0, mayCreate: 0 }
        decide.run({ challengeHash, state: 'rejected', ...nobody, isCancelled: Number(isCancelled), ...verifier })
        const note = isCancelled ? 'cancelled' : 'not allowed'
        record({ kind: 'sign_in.rejected', now, cause, appid: signIn.appid, note })
      }
      if (signIn && verdict === 'decided_otherwise') contradicted(signIn, '', now, cause)
      return { verdict, signIn }
    },

    completeSignIn(returned: Returned, now: number, cause: Cause): SignInReturn {
      const signIn = toSignIn(findByVerifier.get(returned.verifierHash))
      const { previousSessionHash } = returned
      const facts = {
        isSameBrowser: signIn !== undefined && Buffer.compare(signIn.browserHash, returned.browserHash) === 0,
        owner: signIn && ownerOf(signIn),
        isLinkedToHere:
          signIn?.linkTo !== undefined &&
          previousSessionHash !== undefined &&
          effects.isOpenSession(previousSessionHash, signIn.linkTo),
      }
      const verdict = judgeReturn(signIn, facts, now)
      if (!signIn || verdict === 'unknown' || verdict === 'other_browser')
        return { verdict, signIn, sessionExpiresAtMs: 0 }
      end.run(signIn.challengeHash)
      const { provider, subject, appid } = signIn
      const by = byWordOf(provider, cause)
      let sessionExpiresAtMs = 0
      if (verdict === 'created') {
        const { newUserId: userId } = returned
        effects.createUser(userFrom(signIn, userId, now), by)
        if (provider !== '') effects.linkIdentity({ provider, subject }, userId, now, by)
        sessionExpiresAtMs = signedIn(signIn, userId, returned, now, by)
      } else if (verdict === 'signed_in') {
        sessionExpiresAtMs = signedIn(signIn, facts.owner?.userId ?? '', returned, now, by)
      } else if (verdict === 'linked') {
        effects.linkIdentity({ provider, subject }, signIn.linkTo, now, by)
      } else if (verdict !== 'expired' && verdict !== 'rejected') {
        const note = `${verdict} ${noteOnSubject(provider, subject)}`
        record({ kind: 'sign_in.refused', now, cause: by, appid, userId: facts.owner?.userId ?? signIn.linkTo, note })
      }
      return { verdict, signIn, sessionExpiresAtMs }
    },
  }
}

function toSignIn(record: SignInRecord | undefined): Stored | undefined {
  if (!record) return undefined
  const flags = Object.fromEntries(FLAGS.map((flag) => [flag, record[flag] === 1]))
  return { ...record, ...(flags as Pick<Stored, (typeof FLAGS)[number]>) }
}
