// Fills the databases of a survey-auth through its own stores and credentials, outside the measured time: everything a
// request needs but codes is there before it is sent. The same rows as the handlers would write.
import { createHash, randomBytes, randomUUID } from 'node:crypto'
import { readdirSync, readFileSync } from 'node:fs'
import path from 'node:path'
import { AVATAR, NICKNAME, REDIRECT_URI, SCOPE } from './person.js'
import { importOfDist, root } from './root.js'

const HOUR_MS = 3_600_000
const DAY_MS = 24 * HOUR_MS
const CODE_TTL_MS = 300_000
/** Concurrent writes: they share commits well and fit the writer's queue, or the few connections to PostgreSQL. */
const AT_ONCE = { sqlite: 2_000, postgres: 200 }
/** The hash of PASSWORD, at the cost the service uses. */
const PASSWORD_HASH =
  '$argon2id$v=19$m=19456,t=2,p=1$TXHA/l6K6dEyyZn2jnkf7A$yhvmXL9ueZTtwQXnLSi1nGQGwiFWbPEuvliTeh47ujI'

const GRANTS_PER_USER = 10
const READERS = 1_000 // at most; users whose access tokens are used and never refreshed
const OWNERS = { owners: 100, surveysPerOwner: 25 } // of the readers, those who have surveys
const BROWSERS = 100 // of the readers, those who open the authorization page
const call = {
  caller: 'operator',
  callerName: '',
  requestId: randomUUID(),
  traceparent: '',
  signal: undefined,
  deadlineMs: Infinity,
}
const cause = { actor: 'operator', actorId: '', actorSource: '', requestId: call.requestId, dueAt: call.deadlineMs }

/** Hash of the session in which a user confirms. */
const confirmedIn = (userId) => createHash('sha256').update(userId).digest()

/**
 * @param {string} folder of the product, built
 * @param {string} dataDir of a survey-auth that is not running yet
 * @param {{ users: number, grants: number, owners?: number, surveysPerOwner?: number }} amounts accounts; grants to read
 *   with, and as many to refresh; how many of the readers have surveys
 * @param {{ token: string, survey: string }} [urls] of PostgreSQL; SQLite in dataDir without
 */
export async function seedSurveyAuth(folder, dataDir, { users, grants, ...amounts }, urls = undefined) {
  const { owners, surveysPerOwner } = { ...OWNERS, ...amounts }
  const product = await importProduct(folder)
  const atOnce = urls ? AT_ONCE.postgres : AT_ONCE.sqlite
  const store = await product.openTokenStore({
    tokenDatabase: databaseAt(urls?.token, path.join(dataDir, 'token.db')),
  })
  const now = Date.now()
  const app = {
    appid: product.newId('app', randomBytes),
    name: 'Benchmark',
    redirectUris: [REDIRECT_URI],
    requiresSecretOnRefresh: false,
    requiresPkce: false,
    readsAnswers: false,
    isDisabled: false,
    createdAtMs: now,
  }
  const { appid } = app
  const secret = product.newCredential('secret', randomBytes)
  const secretRow = {
    secretId: product.newId('secret', randomBytes),
    appid,
    name: 'first',
    secretHash: secret.hash,
    createdAtMs: now,
    expiresAtMs: undefined,
    revokedAtMs: undefined,
    lastUsedAtMs: undefined,
  }
  await store.createApp(app, secretRow, cause)

  const userIds = await inGroups(users, atOnce, async (index) => {
    const userId = product.newId('user', randomBytes)
    const row = { userId, username: `user${index}`, nickname: NICKNAME, avatar: AVATAR, passwordHash: PASSWORD_HASH }
    await store.createUser({ ...row, externalId: '', isDisabled: false, createdAtMs: now }, cause)
    await startSession(confirmedIn(userId), userId)
    return userId
  })

  async function issueCode(userId) {
    const at = Date.now()
    const code = product.newCredential('code', randomBytes, placeAt(at))
    const result = await store.issueCode(
      {
        codeHash: code.hash,
        appid,
        userId,
        sessionHash: confirmedIn(userId),
        passwordHash: PASSWORD_HASH, // for a baseline that checks this instead
        redirectUri: REDIRECT_URI,
        codeChallenge: '',
        scope: SCOPE,
        permissions: '',
        consentVersion: '',
        expiresAtMs: at + CODE_TTL_MS,
        maxLive: 1000,
      },
      at,
      cause,
    )
    if (result !== 'issued') throw new Error(`a code was ${result}`)
    return code
  }

  async function grant(userId) {
    const code = await issueCode(userId)
    const at = Date.now()
    const place = product.placeOf(code.hash)
    const accessToken = product.newCredential('accessToken', randomBytes, place)
    const refreshToken = product.newCredential('refreshToken', randomBytes, place)
    const result = await store.redeemCode(
      {
        codeHash: code.hash,
        appid,
        secretId: secretRow.secretId,
        redirectUri: undefined,
        codeChallenge: '',
        replayGraceMs: 10_000,
        grantId: product.newId('grant', randomBytes, place),
        accessTokenHash: accessToken.hash,
        accessTokenExpiresAtMs: at + 3 * DAY_MS,
        refreshTokenHash: refreshToken.hash,
        refreshTokenExpiresAtMs: at + 30 * DAY_MS,
        newOpenid: product.newId('o', randomBytes),
        maxGrants: 20,
      },
      at,
      cause,
    )
    if (result.kind !== 'redeemed') throw new Error(`a code was ${result.kind}`)
    return { userId, openid: result.openid, accessToken: accessToken.text, refreshToken: refreshToken.text }
  }

  async function session(userId) {
    const token = product.newCredential('session', randomBytes)
    await startSession(token.hash, userId)
    return token.text
  }

  async function startSession(sessionHash, userId) {
    const row = { sessionHash, userId, passwordHash: PASSWORD_HASH }
    const more = { expiresAtMs: now + 12 * HOUR_MS, previousSessionHash: undefined, browser: '', maxLive: 20 }
    const result = await store.startSession({ ...row, ...more }, now, cause)
    if (result !== 'started') throw new Error(`a session was ${result}`)
  }

  const readers = userIds.slice(0, Math.min(READERS, grants / GRANTS_PER_USER))
  const refreshers = userIds.slice(readers.length, readers.length + grants / GRANTS_PER_USER)
  const newcomers = userIds.slice(readers.length + refreshers.length)
  const readGrants = await inGroups(grants, atOnce, (index) => grant(readers[index % readers.length]))
  const refreshGrants = await inGroups(grants, atOnce, (index) => grant(refreshers[index % refreshers.length]))
  const browsers = readers.slice(0, BROWSERS)
  const readerSessions = await inGroups(browsers.length, atOnce, (index) => session(browsers[index]))
  const newcomerSessions = await inGroups(newcomers.length, atOnce, (index) => session(newcomers[index]))
  await store.close()
  const surveys = await seedSurveys(product, dataDir, { owners: readers.slice(0, owners), surveysPerOwner }, urls)

  return {
    appid,
    secret: secret.text,
    readGrants,
    refreshGrants,
    /** Session tokens of readers. */
    sessions: readerSessions,
    /** Session tokens of many users whose grants nobody uses: too many grants of one user would end the oldest. */
    newcomers: newcomerSessions,
    /** How many writes are given to it at once. */
    atOnce,
    /** Ids of surveys by owner. */
    surveys,
  }
}

async function seedSurveys(product, dataDir, { owners, surveysPerOwner }, urls) {
  const store = await product.openSurveyStore({
    surveyDatabase: databaseAt(urls?.survey, path.join(dataDir, 'survey.db')),
  })
  try {
    const folder = path.join(root, 'examples', 'surveys')
    const examples = readdirSync(folder)
      .filter((name) => name.endsWith('.json'))
      .map((name) => JSON.parse(readFileSync(path.join(folder, name), 'utf8')))
    const importSurveys = product.importSurveys({ store, now: Date.now })
    const ids = new Map()
    for (const ownerUserId of owners) {
      const surveys = Array.from({ length: surveysPerOwner }, (_, index) => {
        const { id, hash, ...example } = examples[index % examples.length]
        return product.surveyFromJson(example)
      })
      const stored = await importSurveys({ ownerUserId, surveys }, call)
      ids.set(
        ownerUserId,
        stored.surveys.map((survey) => Number(survey.id)),
      )
    }
    return ids
  } finally {
    await store.close()
  }
}

function databaseAt(url, file) {
  return url === undefined ? { kind: 'sqlite', file } : { kind: 'postgres', url }
}

async function importProduct(folder) {
  const load = (file) => importOfDist(file, folder)
  const [stores, credentials, surveyJson, handler] = await Promise.all([
    load('bin/compose/stores.js'),
    load('services/token/credentials.js'),
    load('gateway/api/survey-from-json.js').catch(() => load('gateway/api/survey-json.js')), // as older versions call it
    load('services/survey/import-surveys.js'),
  ])
  return { ...stores, ...credentials, ...handler, surveyFromJson: surveyJson.surveyFromJson }
}

/** Calls `make(index)` for 0 to count - 1, `atOnce` at a time. */
export async function inGroups(count, atOnce, make) {
  const made = []
  for (let start = 0; start < count; start += atOnce) {
    const size = Math.min(atOnce, count - start)
    made.push(...(await Promise.all(Array.from({ length: size }, (_, index) => make(start + index)))))
  }
  return made
}

/** The place of a code issued then: 6 bytes of time, 2 random ones. */
function placeAt(ms) {
  const place = randomBytes(8)
  place.writeUIntBE(ms, 0, 6)
  return place
}
