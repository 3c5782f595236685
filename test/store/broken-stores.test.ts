// Proves the conformance suites: every store here breaks one promise of a store, and the checks of that promise must fail.
import { setImmediate as nextTurn } from 'node:timers/promises'
import { describe, expect, test } from 'vitest'
import { openSqliteSurveyStore } from '../../services/survey/store/sqlite/sqlite-survey-store.js'
import type { SurveyStore } from '../../services/survey/store/survey-store.js'
import { openSqliteTokenStore } from '../../services/token/store/sqlite/sqlite-token-store.js'
import type { MintingResult, TokenStore } from '../../services/token/store/token-store.js'
import { type Check, failedChecks } from './conformance.js'
import { surveyStoreChecks } from './survey-store-conformance.js'
import { tokenStoreChecks } from './token-store-conformance.js'

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
    how: "disconnects an app by another user's grant",
    breaks: (store) => ({
      disconnectApp: (grantId, _userId, now, cause) => store.revokeGrant(grantId, now, cause),
    }),
    caughtBy: ["a user can disconnect an app only by a grant of their own; another user's is not found"],
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
