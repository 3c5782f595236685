import { foreignWrites } from '../../../storage/sqlite/kept.js'
import type { Connection } from '../../../storage/sqlite/open.js'
import type { AccessTokenRow, AuditKind, Hash, PresentedToken } from '../token-store.js'

/** A few tens of MiB. At this number all are dropped and looked up again. */
const MAX_TOKENS = 50_000

/** Events of what alters no token. Whatever else happens, except to one grant, all are dropped. */
const HARMLESS = /^(code|identity|secret|session|sign_in)\./

/** Access tokens that were looked up, kept until a write may have changed them. Why they are never stale: see Kept. */
export class KeptTokens {
  readonly #haveOthersWritten: () => boolean
  /** By digest. */
  readonly #tokens = new Map<string, AccessTokenRow>()
  readonly #digestsByGrant = new Map<string, string[]>()

  constructor(db: Connection) {
    this.#haveOthersWritten = foreignWrites(db)
  }

  /** The token as the database has it now; `look` reads it from there. */
  find(token: PresentedToken, look: (accessTokenHash: Hash) => AccessTokenRow | undefined): AccessTokenRow | undefined {
    if (this.#haveOthersWritten()) this.forgetAll()
    const known = this.#tokens.get(token.digest)
    if (known) return known
    const { hash } = token
    const found = hash && look(hash)
    if (found) this.#keep(token.digest, found)
    return found
  }

  /** Called for every event, inside its transaction. */
  changed(kind: AuditKind, grantId: string): void {
    if (kind === 'token.refreshed' || kind === 'grant.revoked') this.forgetGrant(grantId)
    else if (!HARMLESS.test(kind)) this.forgetAll()
  }

  forgetGrant(grantId: string): void {
    for (const digest of this.#digestsByGrant.get(grantId) ?? []) this.#tokens.delete(digest)
    this.#digestsByGrant.delete(grantId)
  }

  forgetAll(): void {
    this.#tokens.clear()
    this.#digestsByGrant.clear()
  }

  #keep(digest: string, token: AccessTokenRow): void {
    if (this.#tokens.size >= MAX_TOKENS) this.forgetAll()
    this.#tokens.set(digest, token)
    const ofGrant = this.#digestsByGrant.get(token.grantId)
    if (ofGrant) ofGrant.push(digest)
    else this.#digestsByGrant.set(token.grantId, [digest])
  }
}
