// What token-store.ts promises, one check per promise. Every adapter of TokenStore must pass them all.
import type { TokenStore } from '../../services/token/store/token-store.js'
import { type Check, describeConformance } from './conformance.js'
import { accountChecks } from './token-store-conformance/accounts.js'
import { appChecks } from './token-store-conformance/apps.js'
import { codeChecks } from './token-store-conformance/codes.js'
import { grantChecks } from './token-store-conformance/grants.js'
import { identityChecks } from './token-store-conformance/identities.js'
import { importChecks } from './token-store-conformance/imports.js'
import { lookupChecks } from './token-store-conformance/lookups.js'
import { rateChecks } from './token-store-conformance/rates.js'
import { signInChecks } from './token-store-conformance/sign-ins.js'
import { tokenChecks } from './token-store-conformance/tokens.js'
import { upkeepChecks } from './token-store-conformance/upkeep.js'

export const tokenStoreChecks: readonly Check<TokenStore>[] = [
  ...appChecks,
  ...accountChecks,
  ...identityChecks,
  ...signInChecks,
  ...importChecks,
  ...codeChecks,
  ...tokenChecks,
  ...grantChecks,
  ...lookupChecks,
  ...rateChecks,
  ...upkeepChecks,
]

/** `open` gives an empty store each time; it is closed after each check. */
export function describeTokenStore(name: string, open: () => Promise<TokenStore>): void {
  describeConformance(`${name} as a token store`, tokenStoreChecks, open)
}
