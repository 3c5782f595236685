// One account in a file that `user import` reads. The bounds are those of ImportedUser, so that one record never spoils a call.
import { z } from 'zod'

/** Nor halves of characters, which are all stored as the same one. */
const NO_CONTROL_CHARACTERS = /^[^\p{Cc}\p{Cs}]*$/u
/** What a Timestamp holds. */
const [EARLIEST, LATEST] = ['0001-01-01T00:00:00Z', '9999-12-31T23:59:59.999Z'].map(Date.parse) as [number, number]

const text = (longest: number) => z.string().min(1).max(longest).regex(NO_CONTROL_CHARACTERS, 'has control characters')

const identity = z.strictObject({ provider: text(64), subject: text(255) })

const account = z
  .strictObject({
    external_id: text(255).optional(),
    username: z
      .string()
      .regex(/^[A-Za-z0-9._@+-]{1,64}$/, 'must be 1 to 64 of letters, digits and ._@+-')
      .optional(),
    nickname: z
      .string()
      .max(100)
      .refine((nickname) => !nickname.includes('\0'), 'has a NUL character')
      .nullish(),
    avatar: z
      .string()
      .max(2_048)
      .regex(/^$|^https?:\/\/[!-~]+$/, 'must be an http or https address')
      .nullish(),
    password_hash: text(1_024).optional(),
    disabled: z.boolean().default(false),
    identities: z.array(identity).max(20).default([]),
    created_at: z.iso
      .datetime({ offset: true })
      .refine((time) => Date.parse(time) >= EARLIEST && Date.parse(time) <= LATEST, 'must be of the years 1 to 9999')
      .optional(),
  })
  .refine(({ external_id, username }) => external_id !== undefined || username !== undefined, {
    error: 'needs an external_id or a username',
  })

export type Account = z.infer<typeof account>

type Input = z.input<typeof account>

/** What a converter makes of a record: members that are absent are undefined. */
export type AccountInput = { readonly [Member in keyof Input]: Input[Member] | undefined }

/** @throws Error that names the faults, and contains no password hash */
export function readAccount(value: unknown): Account {
  const parsed = account.safeParse(value, { reportInput: false })
  if (parsed.success) return parsed.data
  const faults = parsed.error.issues.map(({ path, message }) => [path.join('.'), message].filter(Boolean).join(' '))
  throw new Error(faults.join('; '))
}
