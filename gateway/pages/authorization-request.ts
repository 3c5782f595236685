// What an app asks for in the link of the authorization page (spec 4.1), as it travels through the pages: in the
// address of every page and form on the way, signed together with the forms, and checked by RPC each time it comes back.

import type { Params } from '../query.js'
import { MAX_ID_LENGTH, MAX_REDIRECT_URI_LENGTH, MAX_WORD_LENGTH } from '../query.js'

export const AUTHORIZE_PATH = '/connect/oauth2/authorize'

export interface AuthorizationRequest {
  readonly appid: string
  readonly redirectUri: string
  readonly responseType: string
  readonly scope: string
  /** Empty when absent: then the callback gets none. */
  readonly state: string
  /** Of RFC 7636; this and the method are empty when absent. */
  readonly codeChallenge: string
  readonly codeChallengeMethod: string
}

/** @throws Problem when a parameter is missing, empty, given twice or malformed; what it means is for the RPC to judge. */
export function readAuthorizationRequest(params: Params): AuthorizationRequest {
  return {
    appid: params.required('appid', MAX_ID_LENGTH),
    redirectUri: params.required('redirect_uri', MAX_REDIRECT_URI_LENGTH),
    responseType: params.required('response_type', MAX_WORD_LENGTH),
    scope: params.required('scope', MAX_WORD_LENGTH),
    state: params.optional('state', 8192),
    codeChallenge: params.optional('code_challenge', MAX_WORD_LENGTH),
    codeChallengeMethod: params.optional('code_challenge_method', MAX_WORD_LENGTH),
  }
}

/** Undefined when no authorization is in progress. @throws Problem as readAuthorizationRequest */
export function readRequestInProgress(params: Params): AuthorizationRequest | undefined {
  return params.first('appid') === undefined ? undefined : readAuthorizationRequest(params)
}

/** An address of ours that keeps the authorization request, so that whatever is shown there can lead back to it. */
export function withRequest(path: string, asked: AuthorizationRequest | undefined): string {
  const query = fieldsOf(asked).flatMap(([name, value]) => (value ? [`${name}=${encodeURIComponent(value)}`] : []))
  return query.length === 0 ? path : `${path}?${query.join('&')}`
}

/** For signing: the same request gives the same list, different requests give different ones. */
export function requestValues(asked: AuthorizationRequest | undefined): readonly string[] {
  return fieldsOf(asked).map(([, value]) => value)
}

function fieldsOf(asked: AuthorizationRequest | undefined): readonly (readonly [name: string, value: string])[] {
  if (!asked) return []
  return [
    ['appid', asked.appid],
    ['redirect_uri', asked.redirectUri],
    ['response_type', asked.responseType],
    ['scope', asked.scope],
    ['state', asked.state],
    ['code_challenge', asked.codeChallenge],
    ['code_challenge_method', asked.codeChallengeMethod],
  ]
}

/** The link of the authorization page, rebuilt, with the fragment that spec 4.1 requires. */
export function authorizeHref(asked: AuthorizationRequest): string {
  return `${withRequest(AUTHORIZE_PATH, asked)}#wj_redirect`
}

/** The callback address with the outcome added to whatever query it has, everything else byte for byte (decisions 20). */
export function callbackHref(asked: AuthorizationRequest, outcome: { code: string } | { error: string }): string {
  const added = Object.entries(asked.state === '' ? outcome : { ...outcome, state: asked.state })
  const query = added.map(([name, value]) => `${name}=${encodeURIComponent(value)}`).join('&')
  const address = asked.redirectUri.replace(/[^\x21-\x7e]/gu, encodeURIComponent) // a header is ASCII
  if (!address.includes('?')) return `${address}?${query}`
  return /[?&]$/.test(address) ? address + query : `${address}&${query}`
}
