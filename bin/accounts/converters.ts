// What Keycloak, Auth0 and Firebase export, as accounts. A member that none of them needs is left out.
import { readFileSync } from 'node:fs'
import { z } from 'zod'
import { firebaseHash } from '../../services/token/password/notations.js'
import type { AccountInput } from './account.js'

/** @throws Error that says what the record lacks, without quoting it */
export type Convert = (record: unknown) => AccountInput

const optional = z.string().nullish()

const keycloakUser = z.object({
  id: z.string(),
  username: optional,
  firstName: optional,
  lastName: optional,
  enabled: z.boolean().default(true),
  createdTimestamp: z.number().nullish(),
  credentials: z.array(z.object({ type: optional, secretData: optional, credentialData: optional })).nullish(),
  federatedIdentities: z.array(z.object({ identityProvider: z.string(), userId: z.string() })).nullish(),
})
const keycloakSecret = z.object({ value: z.string(), salt: optional })
const keycloakCredential = z.object({
  algorithm: z.string(),
  hashIterations: z.number(),
  additionalParameters: z.record(z.string(), z.array(z.string())).nullish(),
})

/** A user of a realm export (`kc.sh export`). */
export function fromKeycloak(record: unknown): AccountInput {
  const user = shaped(keycloakUser, record)
  const password = user.credentials?.find(({ type }) => type === 'password')
  return {
    external_id: user.id,
    username: user.username ?? undefined,
    nickname: [user.firstName, user.lastName].filter(Boolean).join(' ') || undefined,
    disabled: !user.enabled,
    created_at: isoOf(user.createdTimestamp),
    identities: user.federatedIdentities?.map(({ identityProvider, userId }) => ({
      provider: identityProvider,
      subject: userId,
    })),
    password_hash: password && keycloakHash(password.secretData, password.credentialData),
  }
}

function keycloakHash(secretData: string | null | undefined, credentialData: string | null | undefined): string {
  const { value, salt } = shaped(keycloakSecret, fromJson(secretData))
  const { algorithm, hashIterations, additionalParameters: more } = shaped(keycloakCredential, fromJson(credentialData))
  const digest = { pbkdf2: 'sha1', 'pbkdf2-sha256': 'sha256', 'pbkdf2-sha512': 'sha512' }[algorithm]
  if (digest) return `$pbkdf2-${digest}$i=${hashIterations}$${unpadded(salt)}$${unpadded(value)}`
  if (algorithm === 'argon2') {
    const [type = 'id', version = '1.3', memory = '', lanes = ''] = ['type', 'version', 'memory', 'parallelism'].map(
      (name) => more?.[name]?.[0],
    )
    const costs = `m=${memory},t=${hashIterations},p=${lanes}`
    return `$argon2${type}$v=${version === '1.0' ? 16 : 19}$${costs}$${unpadded(salt)}$${unpadded(value)}`
  }
  return value // of a plugin such as bcrypt's: a notation that says everything itself
}

const auth0User = z.object({
  user_id: optional,
  _id: z.object({ $oid: z.string() }).nullish(),
  username: optional,
  email: optional,
  nickname: optional,
  name: optional,
  picture: optional,
  blocked: z.boolean().nullish(),
  created_at: optional,
  passwordHash: optional,
  password_hash: optional,
})

/** A line of Auth0's user export, or of the export of password hashes that its support makes. */
export function fromAuth0(record: unknown): AccountInput {
  const user = shaped(auth0User, record)
  const oid = user._id && `auth0|${user._id.$oid}`
  return {
    external_id: user.user_id ?? oid ?? undefined,
    username: user.username ?? user.email ?? undefined,
    nickname: user.nickname ?? user.name ?? undefined,
    avatar: user.picture ?? undefined,
    disabled: user.blocked ?? false,
    created_at: user.created_at ?? undefined,
    password_hash: user.passwordHash ?? user.password_hash ?? undefined,
  }
}

const firebaseUser = z.object({
  localId: z.string(),
  email: optional,
  displayName: optional,
  photoUrl: optional,
  disabled: z.boolean().nullish(),
  createdAt: z.string().regex(/^\d+$/).nullish(),
  passwordHash: optional,
  salt: optional,
  providerUserInfo: z.array(z.object({ providerId: z.string(), rawId: z.string() })).nullish(),
})

/** The parameters that Firebase's console shows for the hashes of a project. */
export interface FirebaseParameters {
  readonly key: Buffer
  readonly saltSeparator: Buffer
  readonly rounds: number
  readonly memoryCost: number
}

/** A user of `firebase auth:export`, as JSON. */
export function fromFirebase(parameters: FirebaseParameters): Convert {
  return (record) => {
    const user = shaped(firebaseUser, record)
    return {
      external_id: user.localId,
      username: user.email ?? undefined,
      nickname: user.displayName ?? undefined,
      avatar: user.photoUrl ?? undefined,
      disabled: user.disabled ?? false,
      created_at: isoOf(user.createdAt == null ? undefined : Number(user.createdAt)),
      identities: user.providerUserInfo
        ?.filter(({ providerId }) => !['password', 'phone'].includes(providerId))
        .map(({ providerId, rawId }) => ({ provider: providerId, subject: rawId })),
      password_hash: user.passwordHash ? ofFirebase(user.passwordHash, user.salt ?? '', parameters) : undefined,
    }
  }
}

function ofFirebase(
  digest: string,
  salt: string,
  { key, saltSeparator, rounds, memoryCost }: FirebaseParameters,
): string {
  const salted = Buffer.concat([Buffer.from(salt, 'base64'), saltSeparator])
  return firebaseHash({ digest: Buffer.from(digest, 'base64'), key, salt: salted, rounds, memoryCost })
}

/**
 * Reads the parameters as the console shows them: `base64_signer_key: …,` and so on, a line each.
 * @throws Error that names what is missing
 */
export function readFirebaseParameters(file: string): FirebaseParameters {
  const text = readFileSync(file, 'utf8')
  const parameter = (name: string) => {
    const found = new RegExp(`${name}["']?\\s*[:=]\\s*["']?([A-Za-z0-9+/_=-]+)`).exec(text)?.[1]
    if (found === undefined) throw new Error(`${file} has no ${name}`)
    return found
  }
  return {
    key: Buffer.from(parameter('base64_signer_key'), 'base64'),
    saltSeparator: Buffer.from(parameter('base64_salt_separator'), 'base64'),
    rounds: Number(parameter('rounds')),
    memoryCost: Number(parameter('mem_cost')),
  }
}

function shaped<Value>(schema: z.ZodType<Value>, record: unknown): Value {
  const parsed = schema.safeParse(record, { reportInput: false })
  if (parsed.success) return parsed.data
  throw new Error(parsed.error.issues.map(({ path, message }) => `${path.join('.')} ${message}`).join('; '))
}

function fromJson(text: string | null | undefined): unknown {
  try {
    return JSON.parse(text ?? '')
  } catch {
    throw new Error('the password credential holds no JSON')
  }
}

function isoOf(ms: number | null | undefined): string | undefined {
  return ms == null ? undefined : new Date(ms).toISOString()
}

function unpadded(base64: string | null | undefined): string {
  return (base64 ?? '').replace(/=+$/, '')
}
