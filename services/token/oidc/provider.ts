// An OpenID Provider that signs users in for us: where the browser is sent, and what is believed of what comes back.
import {
  type AuthorizationCodeGrantChecks,
  allowInsecureRequests,
  authorizationCodeGrant,
  buildAuthorizationUrl,
  type ClientAuth,
  ClientSecretBasic,
  ClientSecretPost,
  type Configuration,
  calculatePKCECodeChallenge,
  clockTolerance,
  discovery,
  enableNonRepudiationChecks,
  fetchUserInfo,
  type IDToken,
  None,
} from 'openid-client'
import { claimsAllow, type Profile, profileOf } from './claims.js'
import { ProviderFailure } from './failure.js'
import { createLogoutTokenReader, type LogoutNotice } from './logout-token.js'
import { createMetadata, type MetadataState } from './metadata.js'
import { providerFailure } from './translate-failure.js'

export interface ProviderSettings {
  /** Names it in addresses, identities and logs. */
  readonly id: string
  /** On its button. */
  readonly label: { readonly en: string; readonly zh: string }
  readonly issuer: string
  readonly clientId: string
  /** Absent for `none`. */
  readonly clientSecret?: string | undefined
  readonly tokenAuth: 'client_secret_basic' | 'client_secret_post' | 'none'
  readonly scopes: readonly string[]
  /** Which claims become the nickname and the avatar. */
  readonly claims: { readonly nickname: string; readonly avatar: string }
  /** Whether somebody whom nobody has linked gets a user of their own. */
  readonly provision: 'create' | 'existing_only'
  /** Of each claim one of these values, or nobody signs in. */
  readonly require: Readonly<Record<string, readonly string[]>>
  /** What asks for another account: not every provider knows `select_account`. */
  readonly switchAccountPrompt: 'select_account' | 'login'
  /** For a step of a sign-in, with all requests that it takes. */
  readonly timeoutMs: number
}

/** Random values of one sign-in, which the answer must repeat or prove. */
export interface SignInSecrets {
  readonly state: string
  readonly nonce: string
  readonly codeVerifier: string
}

/** Who has signed in. */
export interface SignedIn extends Profile {
  /** The provider's own id of the user, unique within it. */
  readonly subject: string
  /** The provider's id of its session, if it has one. */
  readonly sid: string | undefined
  /** When the user last proved who they are, in ms since 1970 UTC, if the provider says so. */
  readonly authenticatedAtMs: number | undefined
}

export interface Provider {
  readonly settings: ProviderSettings
  /**
   * Where to send the browser.
   * @param redirectUri where it comes back to, which the provider has registered
   * @param reauthenticate asks for the password although the user is signed in there
   * @throws ProviderFailure unavailable or misconfigured
   */
  authorizationUrl(
    redirectUri: string,
    secrets: SignInSecrets,
    options?: { reauthenticate?: boolean; selectAccount?: boolean },
  ): Promise<URL>
  /**
   * Redeems what the browser came back with, and verifies the ID token and its signature.
   * @param parameters the query of the callback, as it came
   * @throws ProviderFailure of every kind
   */
  redeem(
    redirectUri: string,
    parameters: string,
    secrets: SignInSecrets,
    options?: { reauthenticate?: boolean },
  ): Promise<SignedIn>
  /** What a logout token says. @throws ProviderFailure when it is not to be believed, or the keys cannot be had */
  readLogoutToken(token: string): Promise<LogoutNotice>
  /** What is known of the provider. Asks nobody. */
  metadata(): MetadataState
  /** Asks the provider anew. @throws ProviderFailure unavailable or misconfigured */
  refresh(): Promise<Configuration>
}

const CLOCK_TOLERANCE_SECONDS = 30
/** How long ago a user may have proved who they are, who was asked to prove it again. */
const REAUTHENTICATED_SECONDS = 300
const SUBJECT = /^\P{Cc}{1,255}$/u // OpenID Connect Core §2: at most 255 characters
const LONGEST_SID = 255
/** Algorithms of ID tokens that are taken: asymmetric ones only. */
export const SIGNING_ALGORITHMS = [
  'RS256',
  'PS256',
  'ES256',
  'EdDSA',
  'Ed25519',
  'RS384',
  'RS512',
  'PS384',
  'PS512',
  'ES384',
  'ES512',
]

export function createProvider(settings: ProviderSettings, now: () => number): Provider {
  const discover = () =>
    discovery(new URL(settings.issuer), settings.clientId, clientMetadata(settings), clientAuth(settings), {
      timeout: settings.timeoutMs / 1000,
      execute: [enableNonRepudiationChecks, ...(settings.issuer.startsWith('http:') ? [allowInsecureRequests] : [])],
    })
  const metadata = createMetadata(
    () =>
      discover().catch((error) => {
        throw providerFailure(error)
      }),
    now,
  )
  const readLogoutToken = createLogoutTokenReader(settings, SIGNING_ALGORITHMS, CLOCK_TOLERANCE_SECONDS)

  return {
    settings,
    metadata: metadata.state,
    refresh: metadata.refresh,

    async authorizationUrl(
      redirectUri,
      { state, nonce, codeVerifier },
      { reauthenticate = false, selectAccount = false } = {},
    ) {
      const configuration = await metadata.get()
      return buildAuthorizationUrl(configuration, {
        redirect_uri: redirectUri,
        scope: settings.scopes.join(' '),
        state,
        nonce,
        code_challenge: await calculatePKCECodeChallenge(codeVerifier),
        code_challenge_method: 'S256',
        ...(reauthenticate && { max_age: '0', prompt: 'login' }),
        ...(selectAccount && !reauthenticate && { prompt: settings.switchAccountPrompt }),
      })
    },

    async redeem(redirectUri, parameters, { state, nonce, codeVerifier }, { reauthenticate = false } = {}) {
      const configuration = await metadata.get()
      const checks: AuthorizationCodeGrantChecks = {
        expectedState: state,
        expectedNonce: nonce,
        pkceCodeVerifier: codeVerifier,
        idTokenExpected: true,
        ...(reauthenticate && { maxAge: REAUTHENTICATED_SECONDS }),
      }
      try {
        const callback = new URL(`${redirectUri}?${parameters}`)
        const tokens = await authorizationCodeGrant(configuration, callback, checks)
        const idToken = tokens.claims() as IDToken // expected above
        return signedIn(settings, await withUserInfo(configuration, settings, tokens.access_token, idToken))
      } catch (error) {
        const code = new URLSearchParams(parameters).get('code') ?? ''
        const failure = providerFailure(error, [code, state, nonce, codeVerifier, settings.clientSecret ?? ''])
        if (failure.kind === 'keys_changed') metadata.refresh().catch(() => undefined) // told by metadata()
        throw failure
      }
    },

    readLogoutToken: async (token) => readLogoutToken(token, (await metadata.get()).serverMetadata()),
  }
}

function clientMetadata({ clientSecret }: ProviderSettings) {
  return {
    [clockTolerance]: CLOCK_TOLERANCE_SECONDS,
    ...(clientSecret !== undefined && { client_secret: clientSecret }),
  }
}

function clientAuth({ tokenAuth, clientSecret }: ProviderSettings): ClientAuth {
  if (tokenAuth === 'none') return None()
  return tokenAuth === 'client_secret_basic' ? ClientSecretBasic(clientSecret) : ClientSecretPost(clientSecret)
}

/** The claims of the ID token, and those of the UserInfo endpoint if the ID token lacks one that is wanted. */
async function withUserInfo(
  configuration: Configuration,
  settings: ProviderSettings,
  accessToken: string,
  idToken: IDToken,
): Promise<IDToken> {
  const wanted = [settings.claims.nickname, ...Object.keys(settings.require)]
  if (wanted.every((name) => idToken[name] !== undefined)) return idToken
  if (!configuration.serverMetadata().userinfo_endpoint) return idToken
  return { ...(await fetchUserInfo(configuration, accessToken, idToken.sub)), ...idToken }
}

function signedIn(settings: ProviderSettings, claims: IDToken): SignedIn {
  if (!claimsAllow(settings.require, claims)) throw new ProviderFailure('not_allowed', 'a required claim is missing')
  if (!SUBJECT.test(claims.sub)) throw new ProviderFailure('misconfigured', 'the subject is too long, or no text')
  return {
    subject: claims.sub,
    ...profileOf(settings.claims, claims),
    sid: typeof claims.sid === 'string' && claims.sid.length <= LONGEST_SID ? claims.sid : undefined,
    authenticatedAtMs: claims.auth_time === undefined ? undefined : claims.auth_time * 1000,
  }
}
