// SignInService: what a platform says of the people who sign in at its own page. Whoever may call it decides who is signed in.
import { timestampFromMs, timestampMs } from '@bufbuild/protobuf/wkt'
import { ErrorReason } from '../../gen/surveyauth/v1/error_pb.js'
import { SignInRejection, type SignInService, SignInState } from '../../gen/surveyauth/v1/sign_in_service_pb.js'
import { VERIFIER_TTL_MS } from '../protocol/sign-in-requests.js'
import type { Call, Handlers } from '../rpc/dispatcher.js'
import { type Reason, ServiceError } from '../rpc/service-error.js'
import { type Cause, causedBy } from '../storage/cause.js'
import { hashTicket, newTicket } from './credentials.js'
import type { TokenDeps } from './deps.js'
import type { Person, SignInDecision, SignInRow, Verifier } from './store/token-store.js'

/** Of a session that nobody asks to last longer: enough for this authorization and a look at the connected apps. */
const SHORT_SESSION_SECONDS = 600

export function createSignInHandlers(deps: TokenDeps): Handlers<typeof SignInService> {
  const { store, now } = deps
  return {
    async getSignInRequest({ signInChallenge }) {
      const challengeHash = hashTicket(signInChallenge)
      const signIn = challengeHash && (await store.findSignIn(challengeHash))
      if (signIn?.provider !== '') throw notFound()
      const app = signIn.appid === '' ? undefined : await store.findApp(signIn.appid)
      return {
        state: stateOf(signIn, now()),
        appName: app?.name ?? '',
        callbackHost: signIn.redirectUri === '' ? '' : new URL(signIn.redirectUri).host,
        language: signIn.language,
        reauthenticate: signIn.asksToReauthenticate,
        selectAccount: signIn.asksToSelectAccount,
        expireTime: timestampFromMs(signIn.expiresAtMs),
        restartUri: signIn.restartUri,
      }
    },

    acceptSignIn({ signInChallenge, externalId, nickname, avatar, authenticateTime, sessionSeconds }, call) {
      const person: Person = {
        provider: '',
        subject: externalId,
        sid: '',
        nickname,
        avatar,
        authenticatedAtMs: authenticateTime ? timestampMs(authenticateTime) : 0,
        mayCreate: true,
        sessionSeconds: sessionSeconds || SHORT_SESSION_SECONDS,
      }
      return decided(deps, signInChallenge, call, (challengeHash, verifier, cause) =>
        store.acceptSignIn(challengeHash, person, verifier, now(), cause),
      )
    },

    rejectSignIn({ signInChallenge, reason }, call) {
      const rejection = { provider: '', isCancelled: reason !== SignInRejection.NOT_ALLOWED }
      return decided(deps, signInChallenge, call, (challengeHash, verifier, cause) =>
        store.rejectSignIn(challengeHash, rejection, verifier, now(), cause),
      )
    },
  }
}

/** Where the browser goes on, with a new verifier. @throws ServiceError as sign_in_service.proto says */
async function decided(
  { randomBytes, now }: TokenDeps,
  challenge: string,
  call: Call,
  decide: (challengeHash: Uint8Array, verifier: Verifier, cause: Cause) => Promise<SignInDecision>,
): Promise<{ redirectTo: string }> {
  const challengeHash = hashTicket(challenge)
  if (!challengeHash) throw notFound()
  const verifier = newTicket(randomBytes)
  const good = { verifierHash: verifier.hash, verifierExpiresAtMs: now() + VERIFIER_TTL_MS }
  const { verdict, signIn } = await decide(challengeHash, good, causedBy('sign_in', call))
  if (!signIn || verdict === 'not_found') throw notFound()
  if (verdict !== 'decided') throw refusal(verdict, signIn)
  const { returnUri } = signIn
  return { redirectTo: `${returnUri}${returnUri.includes('?') ? '&' : '?'}verifier=${verifier.text}` }
}

const notFound = () => new ServiceError(ErrorReason.NOT_FOUND, 'there is no such sign-in')

const refusals: Readonly<
  Record<Exclude<SignInDecision['verdict'], 'decided' | 'not_found'>, readonly [Reason, string]>
> = {
  expired: [ErrorReason.SIGN_IN_EXPIRED, 'the sign-in has taken too long'],
  decided_otherwise: [ErrorReason.SIGN_IN_DECIDED, 'the sign-in was decided otherwise, or is over'],
  user_disabled: [ErrorReason.USER_DISABLED, 'the user is disabled or deleted'],
  not_fresh: [
    ErrorReason.INVALID_ARGUMENT,
    'authenticate_time must be at most 5 minutes ago: the person must sign in anew',
  ],
}

function refusal(verdict: keyof typeof refusals, { restartUri }: SignInRow): ServiceError {
  const [reason, message] = refusals[verdict]
  // Whoever is sent to begin anew without anything that differs comes back at once, for ever.
  const canBeginAnew = verdict === 'expired' || verdict === 'decided_otherwise'
  return new ServiceError(reason, message, canBeginAnew ? { metadata: { restart_uri: restartUri } } : {})
}

function stateOf({ state, expiresAtMs }: SignInRow, now: number): SignInState {
  if (state === 'done') return SignInState.DONE
  if (now >= expiresAtMs) return SignInState.EXPIRED
  return { pending: SignInState.PENDING, accepted: SignInState.ACCEPTED, rejected: SignInState.REJECTED }[state]
}
