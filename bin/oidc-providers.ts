// OIDC_PROVIDERS_FILE: the OpenID Providers that sign users in.
import path from 'node:path'
import { z } from 'zod'
import type { ProviderSettings } from '../services/token/oidc/provider.js'
import { CannotRead, readBytes, readJsonFile } from './json-file.js'
import { isLoopback } from './loopback.js'

const text = z.string().min(1).max(200)
const claimName = z.string().min(1).max(100)

const provider = z
  .strictObject({
    id: z
      .string()
      .max(32)
      .regex(/^[a-z0-9]+(-[a-z0-9]+)*$/, 'must be lower-case letters, digits and single hyphens'),
    label: z.union([text.transform((one) => ({ en: one, zh: one })), z.strictObject({ en: text, zh: text })]),
    issuer: z.string().max(2_000).superRefine(checkIssuer),
    client_id: text,
    client_secret_file: z.string().min(1).optional(),
    token_auth: z.enum(['client_secret_basic', 'client_secret_post', 'none']).default('client_secret_basic'),
    scopes: z
      .array(z.string().regex(/^[\x21\x23-\x5b\x5d-\x7e]+$/, 'is no scope'))
      .max(20)
      .refine((scopes) => scopes.includes('openid'), 'must contain openid')
      .default(['openid', 'profile']),
    claims: z.strictObject({ nickname: claimName.default('name'), avatar: claimName.default('picture') }).prefault({}),
    provision: z.enum(['create', 'existing_only']).default('create'),
    require: z.record(claimName, z.array(text).min(1).max(100)).default({}),
    switch_account_prompt: z.enum(['select_account', 'login']).default('select_account'),
    timeout_ms: z.int().min(100).max(30_000).default(4_000),
  })
  .refine(({ token_auth, client_secret_file }) => (token_auth === 'none') === (client_secret_file === undefined), {
    path: ['client_secret_file'],
    error: 'is needed, unless token_auth is none',
  })

const file = z.strictObject({ providers: z.array(provider).min(1).max(16).superRefine(checkUnique) })

/**
 * The providers that a file lists; none without a file. Secrets are read from the files that it names, relative to itself.
 * @throws ConfigError that names every fault, without the secrets
 */
export function readOidcProviders(name: string): readonly ProviderSettings[] {
  if (name === '') return []
  const { content, faulty } = readJsonFile('OIDC_PROVIDERS_FILE', name)
  const parsed = file.safeParse(content, { reportInput: false })
  if (!parsed.success) throw faulty(parsed.error.issues.map(described))
  const faults: string[] = []
  const settings = parsed.data.providers.map((of, index) => {
    const secret = of.client_secret_file && secretIn(path.resolve(path.dirname(name), of.client_secret_file))
    if (secret && 'fault' in secret) faults.push(`providers.${index}.client_secret_file ${secret.fault}`)
    return toSettings(of, secret && 'text' in secret ? secret.text : undefined)
  })
  if (faults.length > 0) throw faulty(faults)
  return settings
}

function toSettings(of: z.infer<typeof provider>, clientSecret: string | undefined): ProviderSettings {
  return {
    id: of.id,
    label: of.label,
    issuer: of.issuer,
    clientId: of.client_id,
    clientSecret,
    tokenAuth: of.token_auth,
    scopes: of.scopes,
    claims: of.claims,
    provision: of.provision,
    require: of.require,
    switchAccountPrompt: of.switch_account_prompt,
    timeoutMs: of.timeout_ms,
  }
}

function checkIssuer(issuer: string, { addIssue }: z.RefinementCtx): void {
  const url = URL.canParse(issuer) ? new URL(issuer) : undefined
  const isSafe = url && (url.protocol === 'https:' || (url.protocol === 'http:' && isLoopback(url.hostname)))
  if (!isSafe || url.search !== '' || url.hash !== '' || url.username !== '') {
    addIssue('must be an https address without query and fragment, as the provider publishes it')
  } else if (isForManyTenants(url)) {
    addIssue('is an issuer for many tenants: whoever owns any tenant could sign in. Use the address of your own tenant')
  }
}

/** Microsoft's, or one whose documentation has a placeholder for the tenant. */
function isForManyTenants({ hostname, pathname }: URL): boolean {
  const isMicrosoft = hostname === 'login.microsoftonline.com'
  return /%7B|\{/i.test(pathname) || (isMicrosoft && /^\/(?:common|organizations|consumers)(?:\/|$)/.test(pathname))
}

function checkUnique(providers: readonly { readonly id: string }[], { addIssue }: z.RefinementCtx): void {
  providers.forEach(({ id }, index) => {
    const isFirst = providers.findIndex((one) => one.id === id) === index
    if (!isFirst) addIssue({ code: 'custom', path: [index, 'id'], message: 'is given twice', input: undefined })
  })
}

function described({ path: steps, message }: z.core.$ZodIssue): string {
  return `${steps.join('.') || 'the file'} ${message}`
}

function secretIn(name: string): { readonly text: string } | { readonly fault: string } {
  try {
    const text = readBytes(name)
      .toString()
      .replace(/\r?\n$/, '')
    return text === '' || /\p{Cc}/u.test(text) ? { fault: `holds no secret: ${name}` } : { text }
  } catch (error) {
    if (!(error instanceof CannotRead)) throw error
    return { fault: error.message }
  }
}
