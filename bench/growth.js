// `npm run bench:growth`: how lookups, refreshes, start-up, file and memory grow with the number of grants on SQLite, and an
// exchange with what its user has open with other apps.
// Each database is filled in bulk, in the order of its keys, and then asked through the product's own store.
import { createHash, randomBytes, randomUUID } from 'node:crypto'
import { closeSync, existsSync, fsyncSync, openSync, readSync, renameSync, statSync } from 'node:fs'
import path from 'node:path'
import { buildIfNeeded } from '../bin/build-if-needed.js'
import { freePort } from '../test/harness/free-port.js'
import { scriptOptions } from '../test/harness/script-options.js'
import { AVATAR, NICKNAME, REDIRECT_URI, SCOPE } from './person.js'
import { residentMiB, startAlone, startNode, stop, temporaryFolder, untilReady } from './processes.js'
import { importOfDist, root } from './root.js'
import { median, tenths } from './stats.js'

const DAY_MS = 86_400_000
const GRANTS_PER_USER = 10
const LOOKUPS = 20_000 // or as many as there are grants: each is of another token, so that none is found in memory
const STEP = 7_919 // prime to every number of grants that ends in 0
const REFRESHES = 6_400
const AT_ONCE = 64
const START_MS = 120_000
const APPID = 'app_growth'
const OPEN_ROWS = [10, 100, 1_000, 10_000]
const OTHER_APPS = 10
const EXCHANGES = 1_280

const cause = { actor: 'app', actorId: '', actorSource: '', requestId: randomUUID(), dueAt: Infinity }

const options = scriptOptions('npm run bench:growth', {
  grants: [[10_000, 100_000, 1_000_000], 'sizes'],
  in: ['', 'a folder where databases are kept, and found filled the next time'],
})
startAlone()
buildIfNeeded()
const { Database } = await importOfDist('services/storage/sqlite/driver.js')
const { openSqliteTokenStore } = await importOfDist('services/token/store/sqlite/sqlite-token-store.js')
const { packTokens } = await importOfDist('services/token/store/sqlite/grant-row.js')
const rows = []
for (const grants of options.grants) rows.push(await measure(grants))
console.table(Object.fromEntries(rows.map(({ grants, ...row }) => [grants.toLocaleString('en'), row])))
const exchanges = []
for (const open of OPEN_ROWS) exchanges.push([open.toLocaleString('en'), await exchangeBeside(open)])
console.log('an exchange while its user has codes and grants open with other apps:')
console.table(Object.fromEntries(exchanges))

async function measure(grants) {
  const dataDir = options.in ? path.join(options.in, String(grants)) : temporaryFolder(`growth-${grants}`)
  const file = path.join(dataDir, 'token.db')
  const filledMs = existsSync(file) ? 0 : await timed(() => fill(`${file}.filling`, grants))
  if (filledMs > 0) renameSync(`${file}.filling`, file)
  settle(file)
  const store = openSqliteTokenStore({ file })
  const lookups = Math.min(LOOKUPS, grants)
  await lookUp(store, grants, 0, lookups / 10) // opens pages, compiles
  const measured = lookups - lookups / 10
  const lookupMicros = (await timed(() => lookUp(store, grants, lookups / 10, measured))) * (1_000 / measured)
  const batches = []
  for (let batch = 0; batch < REFRESHES / AT_ONCE; batch++) {
    batches.push(
      await timed(() =>
        Promise.all(Array.from({ length: AT_ONCE }, () => refresh(store, grants, Math.floor(Math.random() * grants)))),
      ),
    )
  }
  await store.close()
  const { readyMs, memory } = await start(dataDir)
  return {
    grants,
    'lookup of an access token, µs': tenths(lookupMicros),
    'refreshes a second, 64 at once': Math.round((AT_ONCE * 1_000) / median(batches)),
    'ready after start, ms': Math.round(readyMs),
    'memory after start, MiB': Math.round(memory),
    'file, MiB': Math.round(statSync(file).size / 2 ** 20),
    'filled in, s': tenths(filledMs / 1_000),
  }
}

/** The cost of an exchange to one app while the user has so many rows open with others, half of them unused codes. */
async function exchangeBeside(open) {
  const store = openSqliteTokenStore({ file: path.join(temporaryFolder(`open-${open}`), 'token.db') })
  const user = { userId: userId(0), username: 'user', nickname: NICKNAME, avatar: AVATAR, passwordHash: '$argon2id$' }
  const now = Date.now()
  await store.createUser({ ...user, externalId: '', isDisabled: false, createdAtMs: now }, cause)
  const session = {
    sessionHash: randomBytes(32),
    expiresAtMs: now + DAY_MS,
    previousSessionHash: undefined,
    browser: '',
    maxLive: 1,
  }
  await store.startSession({ ...session, userId: user.userId, passwordHash: user.passwordHash }, now, cause)
  const apps = Array.from({ length: 1 + OTHER_APPS }, (_, n) => `${APPID}_${n}`)
  for (const appid of apps) await addApp(store, appid, now)
  const issue = async (appid) => {
    const codeHash = randomBytes(32)
    const code = { codeHash, appid, userId: user.userId, sessionHash: session.sessionHash, scope: SCOPE }
    const consent = { permissions: '', consentVersion: '' }
    await store.issueCode(
      {
        ...code,
        ...consent,
        redirectUri: REDIRECT_URI,
        codeChallenge: '',
        expiresAtMs: now + 300_000,
        maxLive: 10_000,
      },
      now,
      cause,
    )
    return codeHash
  }
  const others = await atOnce(open, (n) => issue(apps[1 + (n % OTHER_APPS)]))
  await atOnce(open / 2, (n) => exchange(store, apps[1 + (n % OTHER_APPS)], others[n], now))
  const codes = await atOnce(EXCHANGES, () => issue(apps[0]))
  const before = process.cpuUsage()
  const ms = await timed(() => atOnce(EXCHANGES, (n) => exchange(store, apps[0], codes[n], now)))
  const { user: userMicros, system } = process.cpuUsage(before)
  await store.close()
  return {
    'exchange, µs': tenths((ms * 1_000) / EXCHANGES),
    'CPU of an exchange, µs': tenths((userMicros + system) / EXCHANGES),
  }
}

async function addApp(store, appid, now) {
  const rules = { requiresSecretOnRefresh: false, requiresPkce: false, readsAnswers: false, isDisabled: false }
  const app = { appid, name: appid, redirectUris: [REDIRECT_URI], ...rules }
  const secret = { secretId: `secret_${appid}`, appid, name: 'default', secretHash: randomBytes(32), createdAtMs: now }
  const ends = { expiresAtMs: undefined, revokedAtMs: undefined, lastUsedAtMs: undefined }
  await store.createApp({ ...app, createdAtMs: now }, { ...secret, ...ends }, cause)
}

async function exchange(store, appid, codeHash, now) {
  const place = codeHash.subarray(0, 8)
  const tokenHash = () => Buffer.concat([place, randomBytes(24)])
  const redemption = {
    codeHash,
    appid,
    secretId: `secret_${appid}`,
    redirectUri: undefined,
    codeChallenge: '',
    replayGraceMs: 10_000,
    grantId: `grant_${randomUUID()}`,
    accessTokenHash: tokenHash(),
    accessTokenExpiresAtMs: now + 3 * DAY_MS,
    refreshTokenHash: tokenHash(),
    refreshTokenExpiresAtMs: now + 30 * DAY_MS,
    newOpenid: `o_${randomUUID()}`,
    maxGrants: 10_000,
  }
  const { kind } = await store.redeemCode(redemption, now, cause)
  if (kind !== 'redeemed') throw new Error(`an exchange was ${kind}`)
}

/** Does `work` for 0 to `count`, some at once, and returns the results. */
async function atOnce(count, work) {
  const results = []
  for (let from = 0; from < count; from += AT_ONCE) {
    const some = Array.from({ length: Math.min(AT_ONCE, count - from) }, (_, n) => work(from + n))
    results.push(...(await Promise.all(some)))
  }
  return results
}

/** Grants with one access token each, as an exchange leaves them. Indexes are made afterwards, which sorts once. */
async function fill(file, grants) {
  await openSqliteTokenStore({ file }).close() // the schema
  const db = new Database(file)
  db.pragma('journal_mode = DELETE') // in a write-ahead log everything would be written twice
  db.pragma('synchronous = OFF')
  db.pragma('foreign_keys = OFF')
  const indexes = db.prepare(`SELECT name, sql FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL`).all()
  const now = Date.now()
  db.exec('BEGIN')
  for (const { name } of indexes) db.exec(`DROP INDEX ${name}`)
  db.prepare('INSERT INTO apps VALUES (?, ?, ?, 0, 0, 0, 0, 0, ?)').run(
    APPID,
    'Growth',
    JSON.stringify([REDIRECT_URI]),
    now,
  )
  const addUser = db.prepare("INSERT INTO users VALUES (?, ?, '', ?, ?, ?, 0, 0, ?)")
  const addOpenid = db.prepare('INSERT INTO openids VALUES (?, ?, ?)')
  const addGrant = db.prepare(
    `INSERT INTO grants (place, appid, user_id, scope, permissions, consent_version, issued_at_ms, code_hash, code_expires_at_ms, grant_id, openid,
       refresh_token_hash, created_at_ms, last_used_at_ms, expires_at_ms, access_tokens)
     VALUES (?, ?, ?, ?, '', '', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
  )
  const addEvent = db.prepare("INSERT INTO audit_events VALUES (NULL, ?, ?, ?, ?, '', '', ?, ?, ?, ?, ?)")
  for (let user = 0; user * GRANTS_PER_USER < grants; user++) {
    addUser.run(userId(user), `user${user}`, NICKNAME, AVATAR, '$argon2id$'.padEnd(97, 'x'), now)
    addOpenid.run(APPID, userId(user), `o_${String(user).padStart(22, '0')}`)
  }
  for (let n = 0; n < grants; n++) {
    const user = userId(Math.floor(n / GRANTS_PER_USER))
    const openid = `o_${String(Math.floor(n / GRANTS_PER_USER)).padStart(22, '0')}`
    addGrant.run(
      placeOf(n, grants).readBigUInt64BE(),
      APPID,
      user,
      SCOPE,
      now - n,
      keyOf('code', n, grants),
      now - n + 300_000,
      grantId(n),
      openid,
      keyOf('refresh token', n, grants),
      now - n,
      now,
      now + 30 * DAY_MS,
      packTokens([{ hash: keyOf('access token', n, grants), expiresAtMs: now + 3 * DAY_MS }]),
    )
    const eventId = String(n).padStart(36, '0')
    addEvent.run(eventId, now, 'code.exchanged', 'app', cause.requestId, APPID, user, grantId(n), '')
  }
  for (const { sql } of indexes) db.exec(sql)
  db.exec('COMMIT')
  db.pragma('journal_mode = WAL')
  db.close()
}

/** Puts the file on disk and, if the machine has enough memory, into its cache, so that only the database is measured. */
function settle(file) {
  const descriptor = openSync(file, 'r+')
  fsyncSync(descriptor)
  const chunk = Buffer.alloc(2 ** 20)
  while (readSync(descriptor, chunk) > 0);
  closeSync(descriptor)
}

/** Tokens `from` to `from + count` of an order that jumps around. */
async function lookUp(store, grants, from, count) {
  for (let n = 0; n < count; n += AT_ONCE) {
    const tokenOf = (index) => {
      const hash = keyOf('access token', ((from + n + index) * STEP) % grants, grants)
      return { digest: hash.toString('latin1'), hash }
    }
    const found = await Promise.all(
      Array.from({ length: AT_ONCE }, (_, index) => store.findAccessToken(tokenOf(index))),
    )
    if (found.includes(undefined)) throw new Error('a token was not found')
  }
}

async function refresh(store, grants, n) {
  const now = Date.now()
  const minting = {
    refreshTokenHash: keyOf('refresh token', n, grants),
    appid: APPID,
    secretId: undefined,
    accessTokenHash: () => Buffer.concat([placeOf(n, grants), randomBytes(24)]),
    lifetimeMs: 3 * DAY_MS,
    overlapMs: 300_000,
  }
  const result = await store.mintAccessToken(minting, now, cause)
  if (result.kind !== 'good') throw new Error(`a refresh was ${result.kind}`)
}

/** From spawn to the first 200 of /readyz. */
async function start(dataDir) {
  const adminPort = await freePort()
  const env = { DATA_DIR: dataDir, PORT: '0', ADMIN_PORT: String(adminPort), LOG_LEVEL: 'error' }
  const startedAt = performance.now()
  const started = startNode([path.join(root, 'bin', 'survey-auth.js'), 'serve', 'all'], {
    role: 'server',
    env,
    log: path.join(dataDir, 'log'),
  })
  await untilReady(started, `http://127.0.0.1:${adminPort}`, START_MS)
  const readyMs = performance.now() - startedAt
  const memory = residentMiB(started.pid)
  await stop(started)
  return { readyMs, memory }
}

async function timed(work) {
  const startedAt = performance.now()
  await work()
  return performance.now() - startedAt
}

function userId(n) {
  return `user_${String(n).padStart(22, '0')}`
}

function grantId(n) {
  return `grant_${String(n).padStart(22, '0')}`
}

/** The key of a grant's token, as the product makes it: the grant's place, then a hash. */
function keyOf(kind, n, grants) {
  const hash = createHash('sha256').update(`${kind} ${n}`).digest()
  return Buffer.concat([placeOf(n, grants), hash.subarray(0, 24)])
}

/** Ascending with n, so that a table is filled from left to right; a place does not use the first bit. */
function placeOf(n, grants) {
  const place = Buffer.alloc(8)
  place.writeBigUInt64BE((BigInt(n) * 0x7fff_ffff_ffff_fffen) / BigInt(grants))
  return place
}
