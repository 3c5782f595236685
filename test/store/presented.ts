import type { Hash, PresentedToken } from '../../services/token/store/token-store.js'

/** The access token of this hash, as a service looks it up. */
export function presented(hash: Hash): PresentedToken {
  return { digest: Buffer.from(hash).toString('hex'), hash }
}
