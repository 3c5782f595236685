// What the doctor asks of an OpenID Provider, for which it needs the network: with --online only.
import type { ServerMetadata } from 'openid-client'
import { reasonOf } from '../../services/rpc/service-error.js'
import { ProviderFailure } from '../../services/token/oidc/failure.js'
import { createProvider, type ProviderSettings, SIGNING_ALGORITHMS } from '../../services/token/oidc/provider.js'
import type { Verdict } from './checks.js'

/** Beyond it ID tokens are taken for expired, or for not yet valid. */
const CLOCK_TOLERANCE_MS = 30_000

interface Answer {
  /** How far its clock is ahead of ours, in ms; undefined if it does not say. */
  readonly aheadMs: number | undefined
  /** How many keys it publishes. */
  readonly keys: number
}

/** @param origin of our public address */
export async function checkProvider(settings: ProviderSettings, origin: string): Promise<Verdict> {
  const callback = `redirect URI: ${origin}/connect/oidc/${settings.id}/callback`
  try {
    const metadata = (await createProvider(settings, Date.now).refresh()).serverMetadata()
    const answer = await ask(settings, metadata)
    const [wrong, odd] = [faultsOf(settings, metadata, answer), oddities(settings, metadata)]
    const state = wrong.length > 0 ? 'wrong' : odd.length > 0 ? 'odd' : 'ok'
    return { state, detail: [`${settings.issuer} answers`, ...wrong, ...odd, callback].join('; ') }
  } catch (error) {
    const why = error instanceof ProviderFailure ? `${error.kind}, ${error.detail}` : reasonOf(error)
    return {
      state: 'wrong',
      detail: `${settings.issuer} cannot be used: ${why}; mend it there, or in OIDC_PROVIDERS_FILE; ${callback}`,
    }
  }
}

async function ask({ issuer, timeoutMs }: ProviderSettings, { jwks_uri }: ServerMetadata): Promise<Answer> {
  const get = (address: string) => fetch(address, { signal: AbortSignal.timeout(timeoutMs), redirect: 'error' })
  const published = await get(`${issuer.replace(/\/$/, '')}/.well-known/openid-configuration`)
  const dateMs = Date.parse(published.headers.get('date') ?? '')
  const aheadMs = Number.isNaN(dateMs) ? undefined : dateMs - Date.now()
  const set: unknown = jwks_uri === undefined ? {} : await (await get(jwks_uri)).json()
  const keys = typeof set === 'object' && set !== null && 'keys' in set && Array.isArray(set.keys) ? set.keys.length : 0
  return { aheadMs, keys }
}

function faultsOf({ tokenAuth }: ProviderSettings, metadata: ServerMetadata, { aheadMs = 0, keys }: Answer): string[] {
  const algorithms = metadata.id_token_signing_alg_values_supported ?? ['RS256']
  const methods = metadata.token_endpoint_auth_methods_supported ?? ['client_secret_basic']
  const found = [
    Math.abs(aheadMs) > CLOCK_TOLERANCE_MS &&
      `its clock is ${Math.round(aheadMs / 1000)} s ahead of ours: set the one that is wrong`,
    keys === 0 && 'it publishes no keys: it must have one that signs ID tokens',
    !algorithms.some((one) => SIGNING_ALGORITHMS.includes(one)) &&
      `it signs ID tokens with ${algorithms} only: choose ${SIGNING_ALGORITHMS[0]} for this client there`,
    !methods.includes(tokenAuth) && `it does not know token_auth ${tokenAuth}: set one that it knows, ${methods}`,
  ]
  return found.filter((one) => one !== false)
}

function oddities({ scopes, switchAccountPrompt }: ProviderSettings, metadata: ServerMetadata): string[] {
  const known = { scopes: metadata.scopes_supported, prompts: metadata.prompt_values_supported }
  const unknown = scopes.filter((scope) => Array.isArray(known.scopes) && !known.scopes.includes(scope))
  const lacksPrompt = Array.isArray(known.prompts) && !known.prompts.includes(switchAccountPrompt)
  const found = [
    !metadata.code_challenge_methods_supported?.includes('S256') &&
      'it does not say that it knows PKCE with S256: turn it on there',
    unknown.length > 0 && `it does not know the scopes ${unknown}: take them out of scopes`,
    lacksPrompt &&
      `it does not know switch_account_prompt ${switchAccountPrompt}: set one that it knows, ${known.prompts}`,
  ]
  return found.filter((one) => one !== false)
}
