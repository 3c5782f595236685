// Access tokens, apps and their secrets that were looked up, kept until a write changes them. A request then asks the
// database only whether anybody else has written to it (ForeignWrites).
//
// Why they are never stale: this connection is also the one that writes. A write of ours drops what it alters in the middle
// of its transaction, and no read runs between that and the COMMIT, since both are synchronous on one thread. What writes
// themselves need to know about apps and users is kept separately: some of it is read in the middle of a transaction, and it
// is dropped when that is rolled back.

import { BoundedMap } from '../../../storage/bounded-map.js'
import { ForeignWrites } from '../../../storage/sqlite/foreign-writes.js'
import type { TransactionWatcher } from '../../../storage/sqlite/group-commit.js'
import { Kept } from '../../../storage/sqlite/kept.js'
import type { Connection } from '../../../storage/sqlite/open.js'
import type { AccessTokenRow, AppRow, AppSecretRow, AuditKind, Hash, PresentedToken } from '../token-store.js'

/** What writes must know about an app and its secrets. */
export interface AppState {
  readonly isDisabled: boolean
  readonly requiresSecretOnRefresh: boolean
  /** The expiry of each secret that is not revoked, by its id; Infinity for one that does not expire. */
  readonly secretEnds: ReadonlyMap<string, number>
}

/** A few tens of MiB. At this number all are dropped and looked up again. */
const MAX_TOKENS = 50_000
/** Memory for each of: apps, their secrets, what writes know about apps. */
const MAX_APP_BYTES = 16 * 1024 * 1024
const APP_BYTES = 600 // without its redirect URIs
const SECRET_BYTES = 400

/** Memory for what writes know about users: some 100,000 of them. */
const MAX_USER_BYTES = 16 * 1024 * 1024
const USER_BYTES = 160

/** Which kept rows an event may alter. */
type Altered = 'apps' | 'users' | 'tokens' | 'tokens of its grant'

/** A missing kind does not compile. */
const alters: Readonly<Record<AuditKind, readonly Altered[]>> = {
  'app.created': ['apps'],
  'app.updated': ['apps'],
  'app.disabled': ['apps', 'tokens'],
  'app.enabled': ['apps', 'tokens'],
  'secret.added': ['apps'],
  'secret.revoked': ['apps'],
  'user.created': [],
  'user.updated': ['tokens'],
  'user.disabled': ['users', 'tokens'],
  'user.enabled': ['users', 'tokens'],
  'user.password_set': [],
  'user.deleted': ['users', 'tokens'],
  'identity.linked': [],
  'identity.unlinked': [],
  'session.started': [],
  'session.ended': [],
  'code.issued': [],
  'code.exchanged': [],
  'code.replayed': [],
  'token.refreshed': ['tokens of its grant'],
  'grant.revoked': ['tokens of its grant'],
}

export class KeptRows implements TransactionWatcher {
  readonly #foreignWrites: ForeignWrites
  readonly #apps: Kept<AppRow>
  readonly #secrets: Kept<readonly AppSecretRow[]>
  /** By digest. */
  readonly #tokens = new Map<string, AccessTokenRow>()
  readonly #digestsByGrant = new Map<string, string[]>()
  readonly #appStates = new BoundedMap<AppState>(MAX_APP_BYTES)
  /** Whether each user is not disabled. */
  readonly #users = new BoundedMap<boolean>(MAX_USER_BYTES)
  /** Without a writer that reports its transactions, nothing is kept for writes. */
  #isToldOfWrites = false

  constructor(db: Connection) {
    this.#foreignWrites = new ForeignWrites(db, () => this.forgetAll())
    this.#apps = new Kept(this.#foreignWrites, MAX_APP_BYTES)
    this.#secrets = new Kept(this.#foreignWrites, MAX_APP_BYTES)
  }

  /** The app as the database has it now; `look` reads it from there. The same holds for the lookups below. */
  findApp(appid: string, look: (appid: string) => AppRow | undefined): Promise<AppRow | undefined> {
    return this.#apps.find(
      appid,
      () => look(appid),
      ({ redirectUris }) => APP_BYTES + 2 * redirectUris.join().length,
    )
  }

  /** All secrets of the app. */
  async listSecrets(appid: string, look: (appid: string) => readonly AppSecretRow[]): Promise<readonly AppSecretRow[]> {
    const found = await this.#secrets.find(
      appid,
      () => look(appid),
      ({ length }) => SECRET_BYTES * (1 + length),
    )
    return found ?? []
  }

  findToken(
    token: PresentedToken,
    look: (accessTokenHash: Hash) => AccessTokenRow | undefined,
  ): Promise<AccessTokenRow | undefined> {
    return this.#foreignWrites.look().then(() => this.#token(token, look))
  }

  /** For a write: the app as its transaction sees it. The same holds for isLiveUser. */
  appState(appid: string, look: (appid: string) => AppState | undefined): AppState | undefined {
    return this.#forWrite(this.#appStates, appid, look, ({ secretEnds }) => APP_BYTES + SECRET_BYTES * secretEnds.size)
  }

  /** Whether the user is not disabled; undefined if there is none. */
  isLiveUser(userId: string, look: (userId: string) => boolean | undefined): boolean | undefined {
    return this.#forWrite(this.#users, userId, look, () => USER_BYTES)
  }

  begun(): void {
    this.#isToldOfWrites = true
    this.#foreignWrites.lookNow()
  }

  undone(): void {
    this.#appStates.forgetAll()
    this.#users.forgetAll()
  }

  /** Called for every event, inside its transaction. */
  changed(kind: AuditKind, grantId: string): void {
    for (const altered of alters[kind]) {
      if (altered === 'apps') this.forgetApps()
      else if (altered === 'users') this.#users.forgetAll()
      else if (altered === 'tokens') this.forgetTokens()
      else this.#forgetGrant(grantId)
    }
  }

  /**
   * Called by the write that records a use: no answer depends on it, so the rows stay. If that is rolled back, they are ahead
   * by a minute at most, and the recorder of uses writes the use again.
   */
  grantUsed(grantId: string, atMs: number): void {
    for (const digest of this.#digestsByGrant.get(grantId) ?? []) {
      const token = this.#tokens.get(digest)
      if (token && token.grantLastUsedAtMs < atMs) token.grantLastUsedAtMs = atMs
    }
  }

  #forgetGrant(grantId: string): void {
    for (const digest of this.#digestsByGrant.get(grantId) ?? []) this.#tokens.delete(digest)
    this.#digestsByGrant.delete(grantId)
  }

  forgetTokens(): void {
    this.#tokens.clear()
    this.#digestsByGrant.clear()
  }

  forgetApps(): void {
    this.#apps.forgetAll()
    this.#secrets.forgetAll()
    this.#appStates.forgetAll()
  }

  forgetAll(): void {
    this.forgetTokens()
    this.forgetApps()
    this.#users.forgetAll()
  }

  #forWrite<Value>(
    kept: BoundedMap<Value>,
    key: string,
    look: (key: string) => Value | undefined,
    size: (found: Value) => number,
  ): Value | undefined {
    const known = kept.get(key)
    if (known !== undefined) return known
    const found = look(key)
    if (found !== undefined && this.#isToldOfWrites) kept.keep(key, found, size(found))
    return found
  }

  #token(
    token: PresentedToken,
    look: (accessTokenHash: Hash) => AccessTokenRow | undefined,
  ): AccessTokenRow | undefined {
    const { digest } = token
    const known = this.#tokens.get(digest)
    if (known) return known
    const { hash } = token
    const found = hash && look(hash)
    if (found) this.#keepToken(digest, found)
    return found
  }

  #keepToken(digest: string, token: AccessTokenRow): void {
    const { grantId } = token
    if (this.#tokens.size >= MAX_TOKENS) this.forgetTokens()
    this.#tokens.set(digest, token)
    const ofGrant = this.#digestsByGrant.get(grantId)
    if (ofGrant) ofGrant.push(digest)
    else this.#digestsByGrant.set(grantId, [digest])
  }
}
