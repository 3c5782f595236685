// SQLite files with every kind of row, made by the stores themselves.
import { join } from 'node:path'
import { Database } from '../../services/sqlite/driver.js'
import { openSqliteSurveyStore } from '../../services/survey/store/sqlite/sqlite-survey-store.js'
import { openSqliteTokenStore } from '../../services/token/store/sqlite/sqlite-token-store.js'
import type { TokenStore } from '../../services/token/store/token-store.js'
import {
  appRow,
  byOperator,
  byUser,
  grant,
  issue,
  mint,
  NOW,
  redeem,
  secretRow,
  seed,
  startSession,
  userRow,
} from '../store/token-store-verbs.js'

/** Texts that are easy to get wrong on the way. */
export const AWKWARD = [
  '',
  '满意度调查 🎉',
  `it's "quoted" \\ {a,b}`,
  'NULL',
  '\\x00',
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
  await store.setUserDisabled('bob', true, NOW, byOperator)
  await startSession(store, 'session')
  await fillGrants(store)
  await store.close()
  return file
}

async function fillApps(store: TokenStore): Promise<void> {
  const redirectUris = AWKWARD.map((text) => `https://app3.example/?q=${text}`)
  const app = appRow('app3', { redirectUris, requiresSecretOnRefresh: true })
  await store.createApp(app, secretRow('app3', 'soon', { expiresAtMs: NOW + 1 }), byOperator)
  await store.setAppDisabled('app3', true, NOW, byOperator)
  for (const name of AWKWARD) {
    await store.createApp(appRow(`app ${name}`, { name }), secretRow(`app ${name}`, name), byOperator)
  }
  await store.addAppSecret(secretRow('app1', 'old'), NOW, byOperator)
  await store.revokeAppSecret('app1', 'secret_app1_old', NOW, byOperator)
}

async function fillGrants(store: TokenStore): Promise<void> {
  const live = await grant(store)
  await mint(store, live.refreshTokenHash)
  const revoked = await grant(store, { appid: 'app2' })
  await store.revokeGrant(revoked.grantId, {}, NOW + 1, byUser)
  await issue(store, 'unused')
  await issue(store, 'used')
  await redeem(store, 'used')
  await store.recordUses({
    grants: new Map([[live.grantId, NOW + 7]]),
    secrets: new Map([['secret_app1_default', NOW]]),
  })
}

/** Surveys of two owners, with ids that leave gaps, and a document of 2 MiB. */
export async function fullSurveyFile(directory: string): Promise<string> {
  const file = join(directory, 'survey.db')
  const store = openSqliteSurveyStore({ file })
  const draft = { surveyId: 0, hash: '', state: 2 }
  const drafts = AWKWARD.map((title) => ({ ...draft, title, document: Buffer.from(`\0${title}`) }))
  await store.putSurveys('user_ann', drafts, NOW)
  const large = { ...draft, surveyId: 2 ** 53 - 2, title: 'large', document: Buffer.alloc(2 * 1024 * 1024, 'large') }
  await store.putSurveys('user_bob', [large, { ...draft, surveyId: 77, title: 'again', document: Buffer.of() }], NOW)
  await store.putSurveys('user_bob', [{ ...draft, surveyId: 77, title: 'again', document: Buffer.of(0xff) }], NOW + 1)
  await store.close()
  return file
}

/** Rows by table. */
export function rowsOf(file: string): Record<string, Record<string, unknown>[]> {
  const db = new Database(file, { readonly: true })
  try {
    const names = db.prepare<[], string>(`SELECT name FROM sqlite_schema WHERE type = 'table'`).pluck().all()
    const rows = Object.fromEntries(names.map((name) => [name, db.prepare(`SELECT * FROM "${name}"`).all()]))
    return asInPostgres(rows as Record<string, Record<string, unknown>[]>)
  } finally {
    db.close()
  }
}

/** What the stores of the two lay out differently. */
function asInPostgres({
  access_tokens_of_0_1_0: _,
  audit_blocks: __,
  grants,
  audit_events,
  ...rest
}: Record<string, Record<string, unknown>[]>): Record<string, Record<string, unknown>[]> {
  if (!grants || !audit_events) return rest
  const tokensOf = ({ grant_id, access_tokens }: Record<string, unknown>) => {
    const packed = access_tokens as Buffer
    return Array.from({ length: packed.length / 38 }, (_, n) => ({
      access_token_hash: packed.subarray(38 * n, 38 * n + 32),
      grant_id,
      serial: packed.length / 38 - n,
      expires_at_ms: packed.readUIntBE(38 * n + 32, 6),
    }))
  }
  return {
    ...rest,
    grants: grants.map(({ place, access_tokens, ...grant }) => grant),
    audit_events: audit_events.map(({ number, ...event }) => event),
    access_tokens: grants.flatMap(tokensOf),
  }
}
