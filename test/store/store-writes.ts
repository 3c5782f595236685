// Every write of the stores, each of which changes something: for tests that make the database fail in the middle of one.
import type { SurveyStore } from '../../services/survey/store/survey-store.js'
import type { TokenStore } from '../../services/token/store/token-store.js'
import {
  appRow,
  byOperator,
  byUser,
  grant,
  hashOf,
  issue,
  mintingOf,
  NOW,
  redemption,
  secretRow,
  seed,
  signIn,
  startSession,
  userRow,
} from './token-store-verbs.js'

export interface Write<Store, Given> {
  readonly name: string
  readonly run: (store: Store, given: Given) => Promise<unknown>
}

/** The grant that exists before each write. */
export type GivenGrant = Awaited<ReturnType<typeof grant>>

/** Puts into an empty store what the writes need. */
export async function fillTokenStore(store: TokenStore): Promise<GivenGrant> {
  await seed(store)
  const given = await grant(store)
  await issue(store, 'waiting')
  await startSession(store, 'session')
  await store.createUser(userRow('disabled'), byOperator)
  await signIn(store, userRow('disabled'))
  await grant(store, { username: 'disabled' })
  await store.setUserDisabled('user_disabled', true, NOW, byOperator)
  return given
}

export const tokenWrites: readonly Write<TokenStore, GivenGrant>[] = [
  { name: 'issueCode', run: (store) => issue(store, 'fresh') },
  { name: 'redeemCode', run: (store) => store.redeemCode(redemption('waiting'), NOW, byUser) },
  {
    name: 'redeemCode of a replay that ends the grant',
    run: (store, given) => store.redeemCode(redemption(given.name, { replayGraceMs: 0 }), NOW + 1, byUser),
  },
  {
    name: 'mintAccessToken',
    run: (store, given) =>
      store.mintAccessToken({ ...mintingOf(given.refreshTokenHash), lifetimeMs: 1000, overlapMs: 1000 }, NOW, byUser),
  },
  { name: 'revokeGrant', run: (store, given) => store.revokeGrant(given.grantId, NOW, byOperator) },
  { name: 'disconnectApp', run: (store, given) => store.disconnectApp(given.grantId, 'user_ann', NOW, byUser) },
  {
    name: 'recordUses',
    run: (store, given) =>
      store.recordUses({
        grants: new Map([[given.grantId, NOW + 1]]),
        answers: new Map([[given.grantId, NOW + 1]]),
        secrets: new Map([['secret_app1_default', NOW]]),
      }),
  },
  { name: 'createApp', run: (store) => store.createApp(appRow('app9'), secretRow('app9'), byOperator) },
  { name: 'updateApp', run: (store) => store.updateApp('app1', { name: 'New name' }, NOW, byOperator) },
  { name: 'setAppDisabled', run: (store) => store.setAppDisabled('app1', true, NOW, byOperator) },
  { name: 'deleteApp', run: (store) => store.deleteApp('app2', NOW, byOperator) },
  { name: 'addAppSecret', run: (store) => store.addAppSecret(secretRow('app1', 'next'), NOW, byOperator) },
  { name: 'revokeAppSecret', run: (store) => store.revokeAppSecret('app1', 'secret_app1_default', NOW, byOperator) },
  { name: 'createUser', run: (store) => store.createUser(userRow('eve'), byOperator) },
  { name: 'updateUser', run: (store) => store.updateUser('user_ann', { nickname: 'New' }, NOW, byOperator) },
  { name: 'setUserDisabled', run: (store) => store.setUserDisabled('user_ann', true, NOW, byOperator) },
  {
    name: 'changePassword',
    run: (store) => {
      const { passwordHash } = userRow('ann')
      const change = {
        userId: 'user_ann',
        passwordHash,
        newPasswordHash: '$argon2id$new',
        sessionHash: hashOf('session'),
      }
      return store.changePassword(change, NOW, byUser)
    },
  },
  { name: 'setUserPassword', run: (store) => store.setUserPassword('user_ann', '$argon2id$new', NOW, byOperator) },
  { name: 'deleteUser', run: (store) => store.deleteUser('user_disabled', NOW, byOperator) },
  { name: 'startSession', run: (store) => startSession(store, 'another session', { maxLive: 1 }) },
  { name: 'touchSession', run: (store) => store.touchSession(hashOf('session'), NOW + 1) },
  { name: 'endSession', run: (store) => store.endSession(hashOf('session'), NOW, byUser) },
  {
    name: 'removeEnded',
    run: (store) => store.removeEnded({ endedBeforeMs: NOW * 2, auditBeforeMs: NOW * 2, limit: 500 }),
  },
]

/** The writes after which the given grant's access token is no longer good, at once or soon. */
export const ENDS_THE_TOKEN = /ends the grant|mint|revokeGrant|disconnectApp|Disabled|removeEnded/

export const draft = (surveyId: number, title: string) => ({
  surveyId,
  hash: '',
  title,
  state: 2,
  document: Buffer.from(title),
})

/** Survey 7, whose text is `a`. */
export async function fillSurveyStore(store: SurveyStore): Promise<void> {
  await store.putSurveys('ann', [draft(7, 'a')], NOW, byOperator)
  await store.putAnswers(7, [answer, answer], NOW, byOperator)
}

const answer = { answerId: 0, endSeconds: 7, document: Buffer.from('answer') }

export const surveyWrites: readonly Write<SurveyStore, unknown>[] = [
  {
    name: 'putSurveys of new ones',
    run: (store) => store.putSurveys('ann', [draft(0, 'b'), draft(0, 'c')], NOW, byOperator),
  },
  {
    name: 'putSurveys of an existing and a new one',
    run: (store) => store.putSurveys('ann', [draft(7, 'b'), draft(0, 'c')], NOW, byOperator),
  },
  { name: 'deleteSurveys', run: (store) => store.deleteSurveys([7], NOW, byOperator) },
  { name: 'putAnswers', run: (store) => store.putAnswers(7, [answer], NOW, byOperator) },
  { name: 'deleteAnswers', run: (store) => store.deleteAnswers(7, [2], NOW, byOperator) },
  { name: 'deleteAnswers of all', run: (store) => store.deleteAnswers(7, undefined, NOW, byOperator) },
  { name: 'removeEvents', run: (store) => store.removeEvents({ beforeMs: NOW + 1, limit: 500 }) },
]

interface AfterWrite {
  readonly text: string
  readonly ids: readonly number[]
  readonly answers: readonly number[] | undefined
  readonly events: readonly string[]
}

/** What filling a store writes. */
export const FILLED_EVENTS = ['created 7', 'answers.imported 7']
const FILLED = { text: 'a', ids: [7], answers: [1, 2], events: FILLED_EVENTS }

/** The state after each write: the text of survey 7, the ids of all surveys and of its answers, and the events from the oldest on. */
export const AFTER_WRITE: Readonly<Record<string, AfterWrite>> = {
  'putSurveys of new ones': { ...FILLED, ids: [7, 8, 9], events: [...FILLED_EVENTS, 'created 8', 'created 9'] },
  'putSurveys of an existing and a new one': {
    ...FILLED,
    text: 'b',
    ids: [7, 8],
    events: [...FILLED_EVENTS, 'replaced 7', 'created 8'],
  },
  deleteSurveys: { text: '', ids: [], answers: undefined, events: [...FILLED_EVENTS, 'deleted 7'] },
  putAnswers: { ...FILLED, answers: [1, 2, 3], events: [...FILLED_EVENTS, 'answers.imported 7'] },
  deleteAnswers: { ...FILLED, answers: [1], events: [...FILLED_EVENTS, 'answers.deleted 7'] },
  'deleteAnswers of all': { ...FILLED, answers: [], events: [...FILLED_EVENTS, 'answers.deleted 7'] },
  removeEvents: { ...FILLED, events: [] },
}

/** The text of survey 7. */
export async function textOf(store: SurveyStore): Promise<string> {
  return Buffer.from((await store.findSurvey(7))?.document ?? []).toString()
}

/** The ids of all surveys, as the list says. */
export async function idsOf(store: SurveyStore): Promise<number[]> {
  const { total, rows } = await store.listSurveys('ann', { offset: 0, limit: 9 })
  if (total !== rows.length) throw new Error(`${rows.length} surveys are listed of ${total}`)
  return rows.map(({ surveyId }) => surveyId)
}

/** The ids of the answers to survey 7, however they are read and counted. */
export async function answersOf(store: SurveyStore): Promise<number[] | undefined> {
  const page = { afterId: 0, limit: 9, maxBytes: 1e6 }
  const interval = { since: 0, until: 9_999 }
  const [all, ended] = [
    await store.listAnswers({ surveyId: 7 }, page),
    await store.listAnswers({ surveyId: 7 }, { ...page, interval }),
  ]
  if (JSON.stringify(all) !== JSON.stringify(ended)) throw new Error('answers are not found as they are counted')
  if (all && all.total !== all.rows.length) throw new Error(`${all.rows.length} answers are listed of ${all.total}`)
  return all?.rows.map(({ answerId }) => answerId)
}

/** Events from the oldest on, for example `created 7`. */
export async function eventsOf(store: SurveyStore): Promise<string[]> {
  const { rows } = await store.listEvents({}, { limit: 9, after: undefined })
  return rows.map(({ kind, surveyId }) => `${kind.replace(/^survey\./, '')} ${surveyId}`).reverse()
}
