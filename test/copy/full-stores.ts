// SQLite files with every kind of row, made by the stores themselves.
import { join } from 'node:path'
import { Database } from '../../services/storage/sqlite/driver.js'
import { openSqliteSurveyStore } from '../../services/survey/store/sqlite/sqlite-survey-store.js'
import { openSqliteTokenStore } from '../../services/token/store/sqlite/sqlite-token-store.js'
import type { TokenStore } from '../../services/token/store/token-store.js'
import {
  appRow,
  byOperator,
  byUser,
  grant,
  hashOf,
  issue,
  mint,
  NOW,
  redeem,
  secretRow,
  seed,
  startSession,
  userRow,
} from '../store/token-store-verbs.js'

/** Strings that are easily corrupted on the way. */
export const AWKWARD = [
  '',
  '满意度调查 🎉',
  `it's "quoted" \\ {a,b}`,
  'NULL',
  '\\x00',
  '\\u0000',
  '\t\r\n\u0001\u007f',
  'é e\u0301',
]

/** An app, secrets, users, sessions, codes, grants, tokens and events in every state they can be in. */
export async function fullTokenFile(directory: string): Promise<string> {
  const file = join(directory, 'token.db')
  const store = openSqliteTokenStore({ file })
  await seed(store)
  await fillApps(store)
  await store.createUser(userRow('李伟', { nickname: '', avatar: '' }), byOperator)
  await store.createUser(
    userRow('~user_4711', { userId: 'user_4711', externalId: '47 é e\u0301', passwordHash: '' }),
    byOperator,
  )
  await store.linkIdentity({ provider: 'corp', subject: 's 🦊' }, 'user_4711', NOW, byOperator)
  await store.createUser(userRow('gone'), byOperator)
  await store.setUserDisabled('user_gone', true, NOW, byOperator)
  await store.deleteUser('user_gone', NOW, byOperator)
  await store.setUserDisabled('user_bob', true, NOW, byOperator)
  await startSession(store, 'session')
  await fillSignIns(store)
  await fillGrants(store)
  await store.close()
  return file
}

async function fillSignIns(store: TokenStore): Promise<void> {
  for (const [name, isAsked] of [
    ['pending', true],
    ['accepted', false],
    ['rejected', true],
  ] as const) {
    const signIn = {
      challengeHash: hashOf(`challenge ${name}`),
      browserHash: hashOf('browser'),
      source: '192.0.2.1',
      provider: '',
      linkTo: '',
      appid: 'app1',
      redirectUri: 'https://app1.example/callback',
      returnUri: 'https://here.example/return',
      restartUri: 'https://here.example/authorize',
      language: 'zh',
      asksToReauthenticate: isAsked,
      asksToSelectAccount: !isAsked,
      expiresAtMs: NOW + 1,
    }
    await store.beginSignIn(signIn, NOW, byUser)
    const verifier = { verifierHash: hashOf(`verifier ${name}`), verifierExpiresAtMs: NOW + 1 }
    const profile = { nickname: AWKWARD[1] ?? '', avatar: '', authenticatedAtMs: NOW - 1, sessionSeconds: 7 }
    const person = { provider: '', subject: '47', sid: AWKWARD[0] ?? '', mayCreate: true, ...profile }
    if (name === 'accepted') await store.acceptSignIn(signIn.challengeHash, person, verifier, NOW, byUser)
    const rejection = { provider: '', isCancelled: true }
    if (name === 'rejected') await store.rejectSignIn(signIn.challengeHash, rejection, verifier, NOW, byUser)
  }
}

async function fillApps(store: TokenStore): Promise<void> {
  const redirectUris = AWKWARD.map((text) => `https://app3.example/?q=${text}`)
  const app = appRow('app3', { redirectUris, requiresSecretOnRefresh: true, requiresPkce: true, readsAnswers: true })
  const logo = { logoHash: 'hash', contentType: 'image/png', body: Buffer.of(0, 255) }
  await store.updateApp('app1', { face: { description: AWKWARD[1] ?? '', logo } }, NOW, byOperator)
  await store.createApp(app, secretRow('app3', 'soon', { expiresAtMs: NOW + 1 }), byOperator)
  await store.setAppDisabled('app3', true, NOW, byOperator)
  await store.createApp(appRow('app4'), secretRow('app4'), byOperator)
  await store.deleteApp('app4', NOW, byOperator)
  for (const name of AWKWARD) {
    await store.createApp(appRow(`app ${name}`, { name }), secretRow(`app ${name}`, name), byOperator)
  }
  await store.addAppSecret(secretRow('app1', 'old', { requestId: 'request' }), NOW, byOperator)
  await store.revokeAppSecret('app1', 'secret_app1_old', NOW, byOperator)
}

async function fillGrants(store: TokenStore): Promise<void> {
  const live = await grant(store, { permissions: 'read_answers', consentVersion: 'abc' })
  await mint(store, live.refreshTokenHash)
  const revoked = await grant(store, { appid: 'app2' })
  await store.revokeGrant(revoked.grantId, NOW + 1, byUser)
  await issue(store, 'unused', { codeChallenge: 'challenge'.padEnd(43, '-') })
  await issue(store, 'used')
  await redeem(store, 'used')
  await store.recordUses({
    grants: new Map([[live.grantId, NOW + 7]]),
    answers: new Map([[live.grantId, NOW + 6]]),
    secrets: new Map([['secret_app1_default', NOW]]),
  })
}

/** Surveys of two owners, with gaps between ids, a document of 2 MiB, and a deleted survey whose id was the highest. */
export async function fullSurveyFile(directory: string): Promise<string> {
  const file = join(directory, 'survey.db')
  const store = openSqliteSurveyStore({ file })
  const draft = { surveyId: 0, hash: '', state: 2 }
  const drafts = AWKWARD.map((title) => ({ ...draft, title, document: Buffer.from(`\0${title}`) }))
  await store.putSurveys('user_ann', drafts, NOW, byOperator)
  const large = { ...draft, surveyId: 2 ** 53 - 2, title: 'large', document: Buffer.alloc(2 * 1024 * 1024, 'large') }
  await store.putSurveys(
    'user_bob',
    [large, { ...draft, surveyId: 77, title: 'again', document: Buffer.of() }],
    NOW,
    byOperator,
  )
  await store.putSurveys(
    'user_bob',
    [{ ...draft, surveyId: 77, title: 'again', document: Buffer.of(0xff) }],
    NOW + 1,
    byOperator,
  )
  await store.putSurveys(
    'user_bob',
    [{ ...draft, surveyId: 80, title: 'deleted', document: Buffer.of(1) }],
    NOW + 1,
    byOperator,
  )
  const answers = AWKWARD.map((text, at) => {
    return { answerId: 0, endSeconds: at * 3_000, document: Buffer.from(`\0${text}`) }
  })
  for (const surveyId of [77, 80]) await store.putAnswers(surveyId, answers, NOW, byOperator)
  const read = {
    appid: 'app1',
    surveyId: 77,
    ownerUserId: 'user_bob',
    hourMs: NOW,
    firstId: 1,
    lastId: 8,
    requestId: 'r',
  }
  await store.recordAnswersRead(read)
  await store.respondentKey(Buffer.alloc(32, 7))
  await store.deleteSurveys([80], NOW + 2, byOperator)
  await store.close()
  return file
}

type Row = Record<string, unknown>

/** Rows by table, as the file has them. */
export function rawRowsOf(file: string): Record<string, Row[]> {
  const db = new Database(file, { readonly: true })
  try {
    const names = db.prepare<[], string>(`SELECT name FROM sqlite_schema WHERE type = 'table'`).pluck().all()
    const rows = names.map((name) => [name, db.prepare(`SELECT * FROM "${name}"`).all()])
    return Object.fromEntries(rows) as Record<string, Row[]>
  } finally {
    db.close()
  }
}

/** Rows by table, as PostgreSQL should have them. */
export function rowsOf(file: string): Record<string, Row[]> {
  const { audit_blocks: _, clean_ups: __, ...rest } = rawRowsOf(file)
  const { grants: begun, audit_events, ...same } = rest
  if (!begun || !audit_events) return rest
  const grants = begun.filter(({ created_at_ms }) => created_at_ms !== null)
  return {
    ...same,
    codes: begun.map(codeOf),
    grants: grants.map(grantOf),
    access_tokens: grants.flatMap(tokensOf),
    audit_events: audit_events.map(({ number, ...event }) => event),
  }
}

function codeOf(row: Row): Row {
  const { code_hash, appid, user_id, code_challenge, scope, issued_at_ms, grant_id } = row
  const times = { issued_at_ms, expires_at_ms: row.code_expires_at_ms, used_at_ms: row.created_at_ms }
  return { code_hash, appid, user_id, redirect_uri: row.redirect_uri ?? '', code_challenge, scope, ...times, grant_id }
}

function grantOf(row: Row): Row {
  const { place, issued_at_ms, code_hash, code_expires_at_ms, redirect_uri, code_challenge, access_tokens, ...grant } =
    row
  return grant
}

function tokensOf({ grant_id, access_tokens }: Row): Row[] {
  const packed = access_tokens as Buffer
  return Array.from({ length: packed.length / 38 }, (_, n) => ({
    access_token_hash: packed.subarray(38 * n, 38 * n + 32),
    grant_id,
    serial: packed.length / 38 - n,
    expires_at_ms: packed.readUIntBE(38 * n + 32, 6),
  }))
}
