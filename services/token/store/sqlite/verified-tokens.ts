// Access tokens that were looked up, kept until a write changes what was found. A data request then asks the database
// only whether anybody else wrote to it (ForeignWrites).
//
// Why it is never stale: this connection is the one that writes. A write of ours takes the token out in the middle of
// its transaction, and between there and the COMMIT no read runs, since both are synchronous on one thread.
import { ForeignWrites } from '../../../sqlite/foreign-writes.js'
import type { Connection } from '../../../sqlite/open.js'
import type { AccessTokenRow, AuditKind, Hash } from '../token-store.js'

/** A few tens of MiB. With this many, all are forgotten and looked up again. */
const MAX_TOKENS = 50_000

/** What each kind of change may alter of a token. A kind that is missing here does not compile. */
const alters: Readonly<Record<AuditKind, 'tokens of its grant' | 'any token' | 'no token'>> = {
  'app.created': 'no token',
  'app.updated': 'no token',
  'app.disabled': 'any token',
  'app.enabled': 'any token',
  'secret.added': 'no token',
  'secret.revoked': 'no token',
  'user.created': 'no token',
  'user.disabled': 'any token',
  'user.enabled': 'any token',
  'user.password_set': 'no token',
  'session.started': 'no token',
  'session.ended': 'no token',
  'code.issued': 'no token',
  'code.exchanged': 'no token',
  'code.replayed': 'no token',
  'token.refreshed': 'tokens of its grant',
  'grant.revoked': 'tokens of its grant',
}

export class VerifiedTokens {
  readonly #foreignWrites: ForeignWrites
  readonly #byHash = new Map<string, AccessTokenRow>()
  readonly #hashesByGrant = new Map<string, string[]>()

  constructor(db: Connection) {
    this.#foreignWrites = new ForeignWrites(db, () => this.forgetAll())
  }

  /** The token as the database has it now; `look` asks the database itself. */
  async find(
    accessTokenHash: Hash,
    look: (accessTokenHash: Hash) => AccessTokenRow | undefined,
  ): Promise<AccessTokenRow | undefined> {
    await this.#foreignWrites.look()
    const key = Buffer.from(accessTokenHash.buffer, accessTokenHash.byteOffset, accessTokenHash.length).toString(
      'latin1',
    )
    const known = this.#byHash.get(key)
    if (known) return known
    const found = look(accessTokenHash)
    if (found) this.#remember(key, found)
    return found
  }

  /** For every event, inside its transaction. */
  changed(kind: AuditKind, grantId: string): void {
    if (alters[kind] === 'any token') this.forgetAll()
    else if (alters[kind] === 'tokens of its grant') this.forgetGrant(grantId)
  }

  forgetGrant(grantId: string): void {
    for (const key of this.#hashesByGrant.get(grantId) ?? []) this.#byHash.delete(key)
    this.#hashesByGrant.delete(grantId)
  }

  forgetAll(): void {
    this.#byHash.clear()
    this.#hashesByGrant.clear()
  }

  #remember(key: string, token: AccessTokenRow): void {
    if (this.#byHash.size >= MAX_TOKENS) this.forgetAll()
    this.#byHash.set(key, token)
    const ofGrant = this.#hashesByGrant.get(token.grantId)
    if (ofGrant) ofGrant.push(key)
    else this.#hashesByGrant.set(token.grantId, [key])
  }
}
