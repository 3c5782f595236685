// Proves the conformance suites: every store here breaks one promise, and the checks of that promise must fail.
import { setImmediate as nextTurn } from 'node:timers/promises'
import { describe, expect, test } from 'vitest'
import { judgeUnlinking } from '../../services/protocol/unlinking.js'
import { openSqliteSurveyStore } from '../../services/survey/store/sqlite/sqlite-survey-store.js'
import type { SurveyStore } from '../../services/survey/store/survey-store.js'
import { openSqliteTokenStore } from '../../services/token/store/sqlite/sqlite-token-store.js'
import type { MintingResult, TokenStore } from '../../services/token/store/token-store.js'
import { type Check, failedChecks } from './conformance.js'
import { surveyStoreChecks } from './survey-store-conformance.js'
import { tokenStoreChecks } from './token-store-conformance.js'
import { hashAt } from './token-store-verbs.js'

interface Broken<Store> {
  readonly how: string
  readonly breaks: (store: Store) => Partial<Store>
  /** Titles of checks that must fail. */
  readonly caughtBy: readonly string[]
}

const inMemory = { file: ':memory:' }

const brokenTokenStores: readonly Broken<TokenStore>[] = [
  {
    how: 'checks a code and marks it used in two steps',
    breaks(store) {
      const used = new Set<string>()
      return {
        async redeemCode(redemption, now, cause) {
          const code = Buffer.from(redemption.codeHash).toString('hex')
          const isUsed = used.has(code)
          await nextTurn()
          const result = await store.redeemCode(redemption, now, cause)
          if (result.kind === 'redeemed') used.add(code)
          return isUsed || result.kind !== 'refused' || result.replay === 'none'
            ? result
            : { kind: 'redeemed', openid: redemption.newOpenid }
        },
      }
    },
    caughtBy: ['of 200 concurrent exchanges of one code exactly one succeeds, and only its tokens exist'],
  },
  {
    how: 'acknowledges a revocation before it happens',
    breaks: (store) => ({
      async revokeGrant(...args) {
        setTimeout(() => store.revokeGrant(...args).catch(() => undefined), 5)
        return 'revoked'
      },
    }),
    caughtBy: [
      'a revocation holds as soon as it is acknowledged',
      'a refresh that races a revocation leaves no good token behind',
    ],
  },
  {
    how: 'checks a grant before the transaction and not again inside it',
    breaks(store) {
      const minted = new Map<string, MintingResult>()
      return {
        async mintAccessToken(minting, now, cause) {
          const result = await store.mintAccessToken(minting, now, cause)
          const key = Buffer.from(minting.refreshTokenHash).toString('hex')
          if (result.kind === 'good') minted.set(key, result)
          return result.kind === 'refused' ? (minted.get(key) ?? result) : result
        },
      }
    },
    caughtBy: [
      'a revocation holds as soon as it is acknowledged',
      'a refresh that races a revocation leaves no good token behind',
    ],
  },
  {
    how: 'does not check app and secret again when a code is redeemed',
    breaks: (store) => ({
      async redeemCode(redemption, now, cause) {
        const result = await store.redeemCode(redemption, now, cause)
        const isEnded = result.kind === 'app_ended' || result.kind === 'secret_ended'
        return isEnded ? { kind: 'redeemed', openid: redemption.newOpenid } : result
      },
    }),
    caughtBy: [
      'once an app is disabled, its codes, exchanges, refreshes and tokens are refused',
      'no exchange or refresh with a revoked secret succeeds',
    ],
  },
  {
    how: 'never reports an access token as revoked',
    breaks: (store) => ({
      async findAccessToken(presented) {
        const token = await store.findAccessToken(presented)
        return token && { ...token, isRevoked: false }
      },
    }),
    caughtBy: [
      'once an app is disabled, its codes, exchanges, refreshes and tokens are refused',
      "disabling a user ends their sessions and unused codes and refuses their tokens, and nobody else's",
      'a revocation holds as soon as it is acknowledged',
    ],
  },
  {
    how: 'lets every grant of an app that may ask for answers read them',
    breaks: (store) => ({
      async findAccessToken(presented) {
        const token = await store.findAccessToken(presented)
        return token && { ...token, permissions: token.appReadsAnswers ? 'read_answers' : token.permissions }
      },
    }),
    caughtBy: ['a grant permits what its own code was issued for, whatever other grants of the user and the app have'],
  },
  {
    how: 'never ends a grant for a replay',
    breaks: (store) => ({
      redeemCode: (redemption, now, cause) =>
        store.redeemCode({ ...redemption, replayGraceMs: Number.MAX_SAFE_INTEGER - now }, now, cause),
    }),
    caughtBy: [
      'a replay is forgiven until 1 ms before the grace ends, then it ends the grant',
      'without a grace period the first replay ends the grant, and the next does not end it again',
    ],
  },
  {
    how: 'forgives a replay for one millisecond too long',
    breaks: (store) => ({
      redeemCode: (redemption, now, cause) =>
        store.redeemCode({ ...redemption, replayGraceMs: redemption.replayGraceMs + 1 }, now, cause),
    }),
    caughtBy: ['a replay is forgiven until 1 ms before the grace ends, then it ends the grant'],
  },
  {
    how: 'uses a verifier up before it looks at the browser',
    breaks: (store) => ({
      async completeSignIn(returned, now, cause) {
        const result = await store.completeSignIn(returned, now, cause)
        if (result.verdict !== 'other_browser' || !result.signIn) return result
        const { browserHash } = result.signIn
        await store.completeSignIn({ ...returned, browserHash, sessionHash: hashAt(browserHash, 'lost') }, now, cause)
        return result
      },
    }),
    caughtBy: ['another browser uses nothing up, and the one that began goes on'],
  },
  {
    how: 'looks for the owner of an identity and links it in two steps',
    breaks: (store) => ({
      async linkIdentity(identity, userId, now, cause) {
        const found = await Promise.all(['user_ann', 'user_bob'].map((id) => store.listIdentities(id)))
        const outcome = await store.linkIdentity(identity, userId, now, cause)
        return found.flat().length > 0 ? outcome : 'linked'
      },
    }),
    caughtBy: ['of many who link one identity at once exactly one gets it'],
  },
  {
    how: 'ignores the redirect_uri of an exchange',
    breaks: (store) => ({
      redeemCode: (redemption, now, cause) => store.redeemCode({ ...redemption, redirectUri: undefined }, now, cause),
    }),
    caughtBy: ['every refused exchange leaves the code as it was'],
  },
  {
    how: 'judges codes and refresh tokens by a clock that is 1 ms behind',
    breaks: (store) => ({
      redeemCode: (redemption, now, cause) => store.redeemCode(redemption, now - 1, cause),
      mintAccessToken: (minting, now, cause) => store.mintAccessToken(minting, now - 1, cause),
    }),
    caughtBy: [
      'a code is good until 1 ms before its expiry',
      'a refresh token is good until 1 ms before its expiry, and a token minted then has its full lifetime',
    ],
  },
  {
    how: 'leaves replaced tokens their full lifetime',
    breaks: (store) => ({
      mintAccessToken: (minting, now, cause) =>
        store.mintAccessToken({ ...minting, overlapMs: Number.MAX_SAFE_INTEGER - now }, now, cause),
    }),
    caughtBy: [
      'after a refresh earlier tokens live for the overlap, but never beyond their own expiry',
      'without an overlap a refresh ends the earlier tokens at once',
    ],
  },
  {
    how: 'never hands a token out again',
    breaks: (store) => {
      let refreshes = 0
      return {
        mintAccessToken(minting, now, cause) {
          const own = hashAt(minting.refreshTokenHash, `own ${++refreshes}`)
          return store.mintAccessToken({ ...minting, accessTokenHash: () => own }, now, cause)
        },
      }
    },
    caughtBy: [
      'a thousand refreshes at once share one token, which is good for its whole lifetime, and end no other',
      'a token is handed out again within an eighth of the overlap, by clocks that differ by less, and not at its end',
    ],
  },
  {
    how: 'ignores the cap on grants',
    breaks: (store) => ({
      redeemCode: (redemption, now, cause) => store.redeemCode({ ...redemption, maxGrants: 1000 }, now, cause),
    }),
    caughtBy: ['a user keeps only the newest live grants for an app, up to the cap, and older ones are revoked'],
  },
  {
    how: 'makes a new openid for every grant',
    breaks: (store) => ({
      async redeemCode(redemption, now, cause) {
        const result = await store.redeemCode(redemption, now, cause)
        return result.kind === 'redeemed' ? { ...result, openid: redemption.newOpenid } : result
      },
    }),
    caughtBy: [
      'openids are the same for every grant of an app and user, and differ between apps and users',
      'concurrent first exchanges of one user agree on the openid',
    ],
  },
  {
    how: "disconnects an app by another user's grant",
    breaks: (store) => ({
      disconnectApp: (grantId, _userId, now, cause) => store.revokeGrant(grantId, now, cause),
    }),
    caughtBy: ["a user can disconnect an app only by a grant of their own; another user's is not found"],
  },
  {
    how: 'disconnects one grant of an app and leaves the others',
    breaks: (store) => ({
      async disconnectApp(grantId, userId, now, cause) {
        const { rows } = await store.listGrants({ userId }, { limit: 100, after: undefined })
        const isOwn = rows.some((grant) => grant.grantId === grantId)
        return isOwn ? store.revokeGrant(grantId, now, cause) : 'not_found'
      },
    }),
    caughtBy: ["disconnecting an app ends all of the user's grants and unused codes for it, and no others"],
  },
  {
    how: 'reports a session as started although the password has changed',
    breaks: (store) => ({
      async startSession(session, now, cause) {
        await store.startSession(session, now, cause)
        return 'started'
      },
    }),
    caughtBy: ['a session starts only if the password is still the one that was checked'],
  },
  {
    how: "ends anybody's session for a user who names it",
    breaks: (store) => ({
      async endSessions(which, now, cause) {
        if (!which.only) return store.endSessions(which, now, cause)
        await store.endSession(which.only, now, cause)
        return 0
      },
    }),
    caughtBy: ['a user ends one session of their own, or all but one, and none of anybody else'],
  },
  {
    how: 'looks at the ways to sign in before the transaction that takes one away, and not again inside it',
    breaks: (store) => ({
      async unlinkOwnIdentity(identity, userId, ways, now, cause) {
        const [user, identities] = [await store.findUserById(userId), await store.listIdentities(userId)]
        await nextTurn()
        const verdict = user ? judgeUnlinking(identity, { ...user, identities }, ways) : 'not_found'
        if (verdict === 'unlinked') await store.unlinkIdentity(identity, now, cause)
        return verdict
      },
    }),
    caughtBy: ['a user gives up an identity of their own, but not the last way to sign in, whatever races'],
  },
  {
    how: "ends all sessions of a provider's user when one of its sessions is over",
    breaks: (store) => ({
      endProviderSessions: (of, now, cause) => store.endProviderSessions({ ...of, sid: '' }, now, cause),
    }),
    caughtBy: ['a provider ends what began with its session, and what its user began without one, but no grant'],
  },
  {
    how: 'ends the codes of an app in order to delete it',
    breaks: (store) => ({
      async deleteApp(appid, now, cause) {
        const { rows } = await store.listGrants({ appid, liveAtMs: now }, { limit: 1, after: undefined })
        if (rows.length > 0) return 'has_grants'
        await store.setAppDisabled(appid, true, now, cause) // takes its codes, whoever holds them
        return store.deleteApp(appid, now, cause)
      },
    }),
    caughtBy: [
      'an app is deleted once its grants and codes have ended, and not 1 ms before; grants that ended are still listed',
    ],
  },
  {
    how: 'compares identifiers without regard to case',
    breaks: (store) => ({
      findApp: (appid) => store.findApp(appid.toLowerCase()),
      findUser: (username) => store.findUser(username.toLowerCase()),
    }),
    caughtBy: ['identifiers compare byte for byte'],
  },
  {
    how: 'pages grants by time alone and loses rows of the same millisecond',
    breaks: (store) => ({
      listGrants: (filter, page) =>
        store.listGrants(filter, { ...page, after: page.after?.replace(/\..*$/, '.\u0001') }),
    }),
    caughtBy: ['grants are listed newest first and page without loss, even several of the same millisecond'],
  },
  {
    how: 'lists no audit events',
    breaks: () => ({ listAuditEvents: () => Promise.resolve({ rows: [], next: undefined }) }),
    caughtBy: [
      'a code is exchanged for a grant, an access token, a refresh token and an openid',
      'audit events are listed newest first, can be filtered by app and user, and page without loss',
    ],
  },
  {
    how: 'removes ended rows and audit events 1 ms too early',
    breaks: (store) => ({
      removeEnded: (bounds) =>
        store.removeEnded({
          ...bounds,
          endedBeforeMs: bounds.endedBeforeMs + 1,
          auditBeforeMs: bounds.auditBeforeMs + 1,
        }),
    }),
    caughtBy: [
      'codes and sessions that ended before the bound are removed, those that ended at it stay',
      'audit events before their bound are removed, those at it stay',
    ],
  },
  {
    how: 'ignores the limit of a removal',
    breaks: (store) => ({ removeEnded: (bounds) => store.removeEnded({ ...bounds, limit: 1000 }) }),
    caughtBy: ['a removal takes at most its limit of each kind, plus tokens of removed grants; repeated ones take all'],
  },
]

const brokenSurveyStores: readonly Broken<SurveyStore>[] = [
  {
    how: 'lets anyone replace a survey',
    breaks: (store) => ({
      putSurveys: async (_owner, drafts, now, cause) => {
        const owner = (await store.findSurvey(drafts.find((draft) => draft.surveyId > 0)?.surveyId ?? 0))?.ownerUserId
        return store.putSurveys(owner ?? 'ann', drafts, now, cause)
      },
    }),
    caughtBy: ['if an id belongs to another owner, the answer names it and nothing of the batch is stored'],
  },
  {
    how: 'stores drafts one by one',
    breaks: (store) => ({
      async putSurveys(owner, drafts, now, cause) {
        const rows = []
        for (const draft of drafts) {
          const result = await store.putSurveys(owner, [draft], now, cause)
          if (result.kind !== 'stored') return result
          rows.push(...result.rows)
        }
        return { kind: 'stored', rows }
      },
    }),
    caughtBy: ['if an id belongs to another owner, the answer names it and nothing of the batch is stored'],
  },
  {
    how: 'deletes surveys one by one',
    breaks: (store) => ({
      async deleteSurveys(ids, now, cause) {
        let alreadyDeleted = 0
        for (const id of new Set(ids)) {
          const result = await store.deleteSurveys([id], now, cause)
          if (result.kind !== 'deleted') return result
          alreadyDeleted += result.alreadyDeleted
        }
        return { kind: 'deleted', alreadyDeleted }
      },
    }),
    caughtBy: ['if no survey ever had an id, the answer names it and none of the batch is deleted'],
  },
  {
    how: 'lists no survey events',
    breaks: () => ({ listEvents: () => Promise.resolve({ rows: [], next: undefined }) }),
    caughtBy: ['every survey stored or deleted has its own audit event, and refused writes have none'],
  },
  {
    how: 'reports every survey event as a creation',
    breaks: (store) => ({
      async listEvents(filter, page) {
        const { rows, next } = await store.listEvents(filter, page)
        return { rows: rows.map((row) => ({ ...row, kind: 'survey.created' as const })), next }
      },
    }),
    caughtBy: ['every survey stored or deleted has its own audit event, and refused writes have none'],
  },
  {
    how: 'ignores the filter of events',
    breaks: (store) => ({ listEvents: (_, page) => store.listEvents({}, page) }),
    caughtBy: ['events are listed newest first, can be filtered by survey and owner, and page without loss'],
  },
  {
    how: 'removes events at their bound, and more than the limit',
    breaks: (store) => ({
      removeEvents: ({ beforeMs }) => store.removeEvents({ beforeMs: beforeMs + 1, limit: 1000 }),
    }),
    caughtBy: ['events before their bound are removed, at most the limit at a time, and those at it stay'],
  },
  {
    how: 'counts the page instead of the whole list',
    breaks: (store) => ({
      async listSurveys(owner, window) {
        const { rows } = await store.listSurveys(owner, window)
        return { total: rows.length, rows }
      },
    }),
    caughtBy: ['a list holds surveys of one owner, ascends by id, and counts all that the owner has'],
  },
  {
    how: 'starts every page of an export from the first survey',
    breaks: (store) => ({ exportSurveys: (owner, page) => store.exportSurveys(owner, { ...page, afterId: 0 }) }),
    caughtBy: ['exports hold documents, ascend by id, and continue above the last id'],
  },
  {
    how: 'lists the summaries of all owners',
    breaks: (store) => ({ exportSummaries: (_, page) => store.exportSummaries(undefined, page) }),
    caughtBy: ['summaries are of the surveys that are exported: ascending by id, and continued above the last id'],
  },
  {
    how: 'ignores the byte limit of an export',
    breaks: (store) => ({
      exportSurveys: (owner, page) => store.exportSurveys(owner, { ...page, maxBytes: Number.MAX_SAFE_INTEGER }),
    }),
    caughtBy: ['an export ends with the document that reaches its byte limit, even if that is the first'],
  },
]

/** The checks that must catch it fail, and pass on the store as it was. */
async function expectRejected<Store extends { close(): Promise<void> }>(
  checks: readonly Check<Store>[],
  { breaks, caughtBy }: Broken<Store>,
  open: () => Store,
): Promise<void> {
  const concerned = checks.filter(({ title }) => caughtBy.includes(title))
  expect(concerned).toHaveLength(caughtBy.length)
  expect(await failedChecks(concerned, async () => open())).toEqual([])
  const failed = await failedChecks(concerned, async () => {
    const store = open()
    return { ...store, ...breaks(store) }
  })
  expect(failed).toEqual(concerned.map(({ title }) => title))
}

describe('the conformance suites reject a store that', () => {
  for (const broken of brokenTokenStores) {
    test(broken.how, () => expectRejected(tokenStoreChecks, broken, () => openSqliteTokenStore(inMemory)))
  }
  for (const broken of brokenSurveyStores) {
    test(broken.how, () => expectRejected(surveyStoreChecks, broken, () => openSqliteSurveyStore(inMemory)))
  }
})
