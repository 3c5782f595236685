// `npm run test:churn`: a SQLite token store that lives through months in minutes: grants are issued, refreshed and end, the
// janitor runs, and the file must stop growing. No live grant may be touched.
import { createHash, randomBytes, randomUUID } from 'node:crypto'
import { mkdtempSync, rmSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { buildIfNeeded } from '../../bin/build-if-needed.js'
import { scriptOptions } from '../harness/script-options.js'

const MINUTE_MS = 60_000
const DAY_MS = 24 * 60 * MINUTE_MS
const ACCESS_TOKEN_TTL_MS = 3 * DAY_MS
const REFRESH_TOKEN_TTL_MS = 30 * DAY_MS
const KEEP_ENDED_MS = DAY_MS
const KEEP_AUDIT_MS = 5 * DAY_MS
const WAVE_EVERY_MS = 20 * MINUTE_MS
const JANITOR_EVERY_WAVES = 72 // a day
const USERS = 500
const APPID = 'app_churn'
const REDIRECT_URI = 'https://app.example/callback'
const PASSWORD_HASH = '$argon2id$'
const cause = { actor: 'app', actorId: '', actorSource: '', requestId: randomUUID(), dueAt: Infinity }
const dist = new URL('../../dist/', import.meta.url)

/**
 * The file reaches its size when grants begin to be removed, after 34 days; from then on it may grow by a tenth at most.
 * @param {{ refreshes: number, atOnce: number }} options
 * @returns {Promise<string[]>} what went wrong
 */
async function churn({ refreshes, atOnce }) {
  const { openSqliteTokenStore } = await import(new URL('services/token/store/sqlite/sqlite-token-store.js', dist).href)
  const { startJanitor } = await import(new URL('services/token/janitor.js', dist).href)
  const { newCredential } = await import(new URL('services/token/credentials.js', dist).href)
  const directory = mkdtempSync(path.join(tmpdir(), 'survey-auth-churn-'))
  const file = path.join(directory, 'token.db')
  const store = openSqliteTokenStore({ file })
  let now = Date.UTC(2026, 0, 1)
  const janitor = startJanitor({
    store,
    uses: { flush: () => Promise.resolve() },
    timeFloor: { measure: () => Promise.resolve() },
    now: () => now,
    everyMs: 2 ** 31 - 1,
    keepEndedMs: KEEP_ENDED_MS,
    keepAuditMs: KEEP_AUDIT_MS,
    onRemoved: () => undefined,
    onError: () => undefined,
  })
  const keyAt = (place) => newCredential('accessToken', randomBytes, place).hash // of any kind: a store sees no text
  const removed = {}
  const problems = []
  const sizes = []
  let live = []
  let done = 0

  async function exchange(user) {
    const place = randomBytes(8)
    place.writeUIntBE(now, 0, 6) // as the product does
    const code = keyAt(place)
    const refreshTokenHash = keyAt(place)
    const about = { codeHash: code, appid: APPID, redirectUri: REDIRECT_URI, codeChallenge: '' }
    const issued = await store.issueCode(
      {
        ...about,
        userId: `user${user}`,
        sessionHash: sessionOf(`user${user}`),
        scope: 'snsapi_user',
        permissions: '',
        consentVersion: '',
        expiresAtMs: now + 5 * MINUTE_MS,
        maxLive: 10,
      },
      now,
      cause,
    )
    const result = await store.redeemCode(
      {
        ...about,
        secretId: 'secret_churn',
        replayGraceMs: 10_000,
        grantId: `grant_${place.toString('hex')}`,
        accessTokenHash: keyAt(place),
        accessTokenExpiresAtMs: now + ACCESS_TOKEN_TTL_MS,
        refreshTokenHash,
        refreshTokenExpiresAtMs: now + REFRESH_TOKEN_TTL_MS,
        newOpenid: `o_${user}`,
        maxGrants: 1_000,
      },
      now,
      cause,
    )
    if (issued !== 'issued' || result.kind !== 'redeemed') problems.push(`a code was ${issued}, ${result.kind}`)
    live.push({ place, refreshTokenHash, endsAtMs: now + REFRESH_TOKEN_TTL_MS })
  }

  async function refresh({ place, refreshTokenHash }) {
    const minting = { refreshTokenHash, appid: APPID, secretId: undefined, overlapMs: 300_000 }
    const accessTokenHash = keyAt(place)
    const result = await store.mintAccessToken(
      { ...minting, accessTokenHash: () => accessTokenHash, lifetimeMs: ACCESS_TOKEN_TTL_MS },
      now,
      cause,
    )
    if (result.kind !== 'good') problems.push(`the refresh of a live grant was ${result.kind}`)
    else if (!(await store.findAccessToken({ digest: accessTokenHash.toString('hex'), hash: accessTokenHash })))
      problems.push('a new token was not found')
  }

  try {
    await createPeople(store, now)
    for (let user = 0; user < atOnce; user += 1) await exchange(user)
    for (let wave = 1; done < refreshes && problems.length === 0; wave += 1) {
      now += WAVE_EVERY_MS
      live = live.filter(({ endsAtMs }) => now < endsAtMs)
      await exchange(wave % USERS)
      const from = Math.floor(Math.random() * (live.length - atOnce))
      await Promise.all(live.slice(from, from + atOnce).map(refresh))
      done += atOnce
      if (wave % JANITOR_EVERY_WAVES !== 0) continue
      for (const [table, rows] of Object.entries(await janitor.run())) removed[table] = (removed[table] ?? 0) + rows
      sizes.push({ day: wave / JANITOR_EVERY_WAVES, bytes: statSync(file).size })
      if (sizes.length % 20 === 0) say(`day ${sizes.length}: ${done} refreshes, ${mib(statSync(file).size)} MiB`)
    }
    for (let start = 0; start < live.length; start += atOnce) {
      await Promise.all(live.slice(start, start + atOnce).map(refresh))
    }
    const full = sizes
      .filter(({ day }) => day > 2 + (REFRESH_TOKEN_TTL_MS + ACCESS_TOKEN_TTL_MS) / DAY_MS)
      .map(({ bytes }) => bytes)
    const first = full[0] ?? 0
    const largest = Math.max(0, ...full)
    say(
      `${done} refreshes in ${sizes.length} days: ${mib(first)} MiB when grants began to go, ${mib(largest)} at most since`,
    )
    say(`removed: ${JSON.stringify(removed)}; ${live.length} live grants, all refreshed once more`)
    if (full.length < 10) problems.push('too few refreshes: the file was not full for ten days')
    if (largest > 1.1 * first) problems.push(`the file grew from ${first} to ${largest} bytes`)
    for (const table of ['codes', 'accessTokens', 'grants', 'auditEvents']) {
      if (!removed[table]) problems.push(`nothing was removed of ${table}`)
    }
    return problems
  } finally {
    await janitor.stop()
    await store.close()
    rmSync(directory, { recursive: true, force: true })
  }
}

async function createPeople(store, now) {
  const rules = { requiresSecretOnRefresh: false, requiresPkce: false, readsAnswers: false }
  const app = { appid: APPID, name: 'Churn', redirectUris: [REDIRECT_URI], ...rules }
  const secret = {
    secretId: 'secret_churn',
    appid: APPID,
    name: 'first',
    secretHash: randomBytes(32),
    createdAtMs: now,
  }
  await store.createApp({ ...app, isDisabled: false, createdAtMs: now }, secret, cause)
  const users = Array.from({ length: USERS }, (_, index) => ({
    userId: `user${index}`,
    username: `user${index}`,
    nickname: 'A user',
    externalId: '',
    avatar: 'https://img.example/user.png',
    passwordHash: PASSWORD_HASH,
    isDisabled: false,
    createdAtMs: now,
  }))
  const session = {
    passwordHash: PASSWORD_HASH,
    expiresAtMs: Number.MAX_SAFE_INTEGER,
    previousSessionHash: undefined,
    browser: '',
    maxLive: 1,
  }
  for (const { userId, ...user } of users) {
    await store.createUser({ userId, ...user }, cause)
    await store.startSession({ ...session, userId, sessionHash: sessionOf(userId) }, now, cause)
  }
}

/** Hash of the session in which a user confirms. */
function sessionOf(userId) {
  return createHash('sha256').update(userId).digest()
}

function mib(bytes) {
  return (bytes / 2 ** 20).toFixed(1)
}

function say(line) {
  process.stdout.write(`${line}\n`)
}

const options = scriptOptions('npm run test:churn', {
  refreshes: [1_000_000, 'in all'],
  'at-once': [64, 'refreshes of one moment, of which there are 72 a day'],
})
buildIfNeeded()
const startedAt = performance.now()
const problems = await churn({ refreshes: options.refreshes, atOnce: options['at-once'] })
for (const problem of problems) say(`VIOLATION: ${problem}`)
say(
  `${problems.length === 0 ? 'the file stays as it is' : 'FAILED'}, ${Math.round((performance.now() - startedAt) / 1000)} s`,
)
process.exitCode = problems.length === 0 ? 0 : 1
