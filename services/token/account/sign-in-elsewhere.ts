// The gateway's part of a sign-in that goes on elsewhere: it begins and ends there, in the same browser.
import type { MessageInitShape } from '@bufbuild/protobuf'
import { timestampFromMs } from '@bufbuild/protobuf/wkt'
import {
  type BeginSignInRequest,
  type BeginSignInResponseSchema,
  type CompleteSignInRequest,
  type CompleteSignInResponseSchema,
  CompleteSignInResponse_Outcome as Outcome,
} from '../../../gen/surveyauth/v1/account_service_pb.js'
import { ErrorReason } from '../../../gen/surveyauth/v1/error_pb.js'
import { type ReturnVerdict, SIGN_IN_TTL_MS } from '../../protocol/sign-in-requests.js'
import type { Call } from '../../rpc/dispatcher.js'
import { ServiceError } from '../../rpc/service-error.js'
import { causedBy } from '../../storage/cause.js'
import { requireApp } from '../app-authentication.js'
import { requireRedirectUri } from '../check-authorization-request.js'
import { hashSecret, hashTicket, newCredential, newId, newTicket } from '../credentials.js'
import type { TokenDeps } from '../deps.js'
import { liveSession } from '../session.js'
import type { NewSignIn } from '../store/token-store.js'
import { providerAddress } from './asking-a-provider.js'

/** Begins a sign-in at the platform or a provider. */
export function beginSignIn(deps: TokenDeps) {
  return async (
    request: BeginSignInRequest,
    call: Call,
  ): Promise<MessageInitShape<typeof BeginSignInResponseSchema>> => {
    const { platform, providers } = deps.signInMethods
    const provider = providers.get(request.provider)
    if (!provider && (request.provider !== '' || !platform)) {
      throw new ServiceError(ErrorReason.NOT_FOUND, 'nobody signs in there')
    }
    const challenge = await begin(deps, { ...request, linkTo: '' }, call)
    if (provider) return { redirectTo: await providerAddress(deps, provider, request, challenge, call) }
    return { redirectTo: platformAddress(platform as URL, challenge, request.language) }
  }
}

function platformAddress(platform: URL, challenge: string, language: string): string {
  const address = new URL(platform)
  address.searchParams.set('sign_in_challenge', challenge)
  address.searchParams.set('lang', language)
  return address.href
}

type Begun = Omit<BeginSignInRequest, '$typeName' | '$unknown'> & Pick<NewSignIn, 'linkTo'>

/** The challenge of a sign-in in progress. @throws ServiceError INVALID_APPID, INVALID_REDIRECT_URI, RATE_LIMITED */
export async function begin(deps: TokenDeps, asked: Begun, call: Call): Promise<string> {
  const { appid, redirectUri, provider, linkTo, source, returnUri, restartUri, language } = asked
  if (appid !== '') requireRedirectUri(await requireApp(deps, appid), redirectUri)
  const challenge = newTicket(deps.randomBytes)
  const now = deps.now()
  const signIn: NewSignIn = {
    challengeHash: challenge.hash,
    browserHash: hashSecret(asked.browserKey),
    source,
    provider,
    linkTo,
    appid,
    redirectUri,
    returnUri,
    restartUri,
    language,
    asksToReauthenticate: asked.reauthenticate,
    asksToSelectAccount: asked.selectAccount,
    expiresAtMs: now + SIGN_IN_TTL_MS,
  }
  if ((await deps.store.beginSignIn(signIn, now, causedBy('user', call))) === 'too_many') {
    throw new ServiceError(ErrorReason.RATE_LIMITED, 'too many sign-ins are in progress', { retryAfterSeconds: 60 })
  }
  return challenge.text
}

const outcomes: Readonly<Record<Exclude<ReturnVerdict, 'rejected'>, Outcome>> = {
  unknown: Outcome.UNKNOWN,
  other_browser: Outcome.OTHER_BROWSER,
  expired: Outcome.EXPIRED,
  user_disabled: Outcome.USER_DISABLED,
  identity_taken: Outcome.IDENTITY_TAKEN,
  no_account: Outcome.NO_ACCOUNT,
  linked: Outcome.LINKED,
  signed_in: Outcome.SIGNED_IN,
  created: Outcome.SIGNED_IN,
}

/** Ends a sign-in when the browser comes back. */
export function completeSignIn(deps: TokenDeps) {
  return async (
    request: Pick<CompleteSignInRequest, 'verifier' | 'browserKey' | 'previousSessionToken' | 'browser'>,
    call: Call,
  ): Promise<MessageInitShape<typeof CompleteSignInResponseSchema>> => {
    const verifierHash = hashTicket(request.verifier)
    if (!verifierHash) return { outcome: Outcome.UNKNOWN }
    const session = newCredential('session', deps.randomBytes)
    const previous = await liveSession(deps, request.previousSessionToken)
    const { verdict, signIn, sessionExpiresAtMs } = await deps.store.completeSignIn(
      {
        verifierHash,
        browserHash: hashSecret(request.browserKey),
        newUserId: newId('user', deps.randomBytes),
        browser: request.browser,
        sessionHash: session.hash,
        previousSessionHash: previous?.sessionHash,
        maxLive: deps.rules.maxSessionsPerUser,
      },
      deps.now(),
      causedBy('user', call),
    )
    if (verdict === 'other_browser' || !signIn)
      return { outcome: outcomes[verdict === 'other_browser' ? verdict : 'unknown'] }
    const { restartUri, isCancelled } = signIn
    if (verdict === 'rejected') return { outcome: isCancelled ? Outcome.CANCELLED : Outcome.NOT_ALLOWED, restartUri }
    const outcome = outcomes[verdict]
    if (outcome !== Outcome.SIGNED_IN) return { outcome, restartUri }
    return { outcome, restartUri, sessionToken: session.text, expireTime: timestampFromMs(sessionExpiresAtMs) }
  }
}
