// The end of a sign-in at an OpenID Provider: what is made of what the browser brings back.
import { timingSafeEqual } from 'node:crypto'
import type { MessageInitShape } from '@bufbuild/protobuf'
import {
  type CompleteSignInRequest,
  type CompleteSignInResponseSchema,
  CompleteSignInResponse_Outcome as Outcome,
} from '../../../gen/surveyauth/v1/account_service_pb.js'
import { VERIFIER_TTL_MS } from '../../protocol/sign-in-requests.js'
import type { Call } from '../../rpc/dispatcher.js'
import { type Cause, causedBy } from '../../storage/cause.js'
import { hashSecret, hashTicket, newTicket } from '../credentials.js'
import type { TokenDeps } from '../deps.js'
import type { ProviderFailure, ProviderFailureKind } from '../oidc/failure.js'
import type { Provider, SignedIn } from '../oidc/provider.js'
import type { Hash, SignInDecision, SignInRow } from '../store/token-store.js'
import { secretsOf, told } from './asking-a-provider.js'
import { completeSignIn } from './sign-in-elsewhere.js'

type Completed = MessageInitShape<typeof CompleteSignInResponseSchema>

/** Ends a sign-in at a provider when the browser comes back from there. */
export function completeProviderSignIn(deps: TokenDeps) {
  const complete = completeSignIn(deps)
  return async (request: CompleteSignInRequest, call: Call): Promise<Completed> => {
    const provider = deps.signInMethods.providers.get(request.provider)
    const state = new URLSearchParams(request.parameters).get('state') ?? ''
    const challengeHash = hashTicket(state)
    const signIn = challengeHash && (await deps.store.findSignIn(challengeHash))
    if (!provider || !challengeHash || signIn?.provider !== request.provider || signIn.state !== 'pending')
      return { outcome: Outcome.UNKNOWN }
    // Before the code is redeemed: nobody finishes, or spoils, what another browser has begun.
    if (!timingSafeEqual(signIn.browserHash, hashSecret(request.browserKey))) return { outcome: Outcome.OTHER_BROWSER }
    const { returnUri, restartUri, asksToReauthenticate: reauthenticate } = signIn
    if (deps.now() >= signIn.expiresAtMs) return { outcome: Outcome.EXPIRED, restartUri }
    if (!(await isFirst(deps, signIn))) return { outcome: Outcome.UNKNOWN, restartUri }
    const secrets = secretsOf(state, request.browserKey)
    const redeemed = provider.redeem(returnUri, request.parameters, secrets, { reauthenticate })
    const person = await told(deps, provider, 'complete', call, redeemed)
    if (!('subject' in person) && !isRejection(person.kind)) return { outcome: outcomes[person.kind], restartUri }
    const verifier = newTicket(deps.randomBytes)
    const decision = await decide(deps, provider, { challengeHash, verifierHash: verifier.hash }, person, call)
    if (decision.verdict !== 'decided') return { outcome: undecided[decision.verdict], restartUri }
    return complete({ ...request, verifier: verifier.text }, call)
  }
}

/** A double click, or a second tab, would have the provider redeem the code twice, which may end what the first one began. */
async function isFirst({ store }: TokenDeps, { challengeHash, expiresAtMs }: SignInRow): Promise<boolean> {
  const key = `callback ${Buffer.from(challengeHash).toString('base64url')}`
  const [times = 0] = await store.countRequests([{ key, windowEndMs: expiresAtMs, requests: 1 }])
  return times === 1
}

const isRejection = (kind: ProviderFailureKind) => kind === 'denied' || kind === 'not_allowed'

function decide(
  { store, now, rules }: TokenDeps,
  { settings }: Provider,
  { challengeHash, verifierHash }: { readonly challengeHash: Hash; readonly verifierHash: Hash },
  person: SignedIn | ProviderFailure,
  call: Call,
): Promise<SignInDecision> {
  const cause: Cause = causedBy('sign_in', call)
  const verifier = { verifierHash, verifierExpiresAtMs: now() + VERIFIER_TTL_MS }
  const { id: provider } = settings
  if (!('subject' in person)) {
    const rejection = { provider, isCancelled: person.kind === 'denied' }
    return store.rejectSignIn(challengeHash, rejection, verifier, now(), cause)
  }
  const { subject, sid = '', nickname, avatar, authenticatedAtMs = 0 } = person
  const mayCreate = settings.provision === 'create'
  const accepted = {
    provider,
    subject,
    sid,
    nickname,
    avatar,
    authenticatedAtMs,
    mayCreate,
    sessionSeconds: rules.sessionTtlSeconds,
  }
  return store.acceptSignIn(challengeHash, accepted, verifier, now(), cause)
}

const outcomes: Readonly<Record<ProviderFailureKind, Outcome>> = {
  unavailable: Outcome.PROVIDER_UNAVAILABLE,
  keys_changed: Outcome.PROVIDER_UNAVAILABLE, // the next attempt knows them
  misconfigured: Outcome.PROVIDER_MISCONFIGURED,
  expired: Outcome.EXPIRED,
  denied: Outcome.CANCELLED,
  not_allowed: Outcome.NOT_ALLOWED,
}

const undecided: Readonly<Record<Exclude<SignInDecision['verdict'], 'decided'>, Outcome>> = {
  not_found: Outcome.UNKNOWN,
  expired: Outcome.EXPIRED,
  decided_otherwise: Outcome.UNKNOWN,
  not_fresh: Outcome.NOT_ALLOWED,
  user_disabled: Outcome.USER_DISABLED,
}
