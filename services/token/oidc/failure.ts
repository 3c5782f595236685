// Why a sign-in through a provider fails, as far as the person and the operator can do something about it.
export const PROVIDER_FAILURES = [
  /** The provider was not reached in time, or says that it cannot answer. */
  'unavailable',
  /** It signs with keys that are not known yet; they are asked for, and the next sign-in finds them. */
  'keys_changed',
  /** Its settings and ours differ, or what it sends must not be believed. */
  'misconfigured',
  /** The person, or the provider, said no. */
  'denied',
  /** The person lacks a claim that is required. */
  'not_allowed',
  /** The provider knows the code no longer. */
  'expired',
] as const
export type ProviderFailureKind = (typeof PROVIDER_FAILURES)[number]

export class ProviderFailure extends Error {
  override readonly name = 'ProviderFailure'

  /** @param detail for the operator only: it may contain what the provider sent */
  constructor(
    readonly kind: ProviderFailureKind,
    readonly detail: string,
  ) {
    super(`${kind}: ${detail}`)
  }
}
