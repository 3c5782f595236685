// Whether a user may give up an identity: not the last way in which they can sign in.

/** The ways in which anybody can sign in. */
export interface OpenWays {
  readonly password: boolean
  readonly platform: boolean
  /** Their ids. */
  readonly providers: readonly string[]
}

interface Identity {
  readonly provider: string
  readonly subject: string
}

export type UnlinkingVerdict = 'unlinked' | 'not_found' | 'last_way'

export function judgeUnlinking(
  identity: Identity,
  user: { readonly passwordHash: string; readonly externalId: string; readonly identities: readonly Identity[] },
  ways: OpenWays,
): UnlinkingVerdict {
  const isGivenUp = ({ provider, subject }: Identity) => provider === identity.provider && subject === identity.subject
  if (!user.identities.some(isGivenUp)) return 'not_found'
  const canSignIn =
    (ways.password && user.passwordHash !== '') ||
    (ways.platform && user.externalId !== '') ||
    user.identities.some((other) => !isGivenUp(other) && ways.providers.includes(other.provider))
  return canSignIn ? 'unlinked' : 'last_way'
}
