// Which user a command means: an argument or option names one by username, user_id or external_id.
import { idForm } from '../../services/token/credentials.js'
import type { Operator } from '../compose/operator.js'

const USER_ID = idForm('user')

/** What an external_id is written after, where a command takes a user: no name holds a colon. */
export const EXTERNAL_ID = 'external_id:'

type NamedUser = { readonly username: string } | { readonly userId: string } | { readonly externalId: string }

/** How a request names the user; empty for none. */
export function namedUser(nameOrId: string): NamedUser {
  if (nameOrId.startsWith(EXTERNAL_ID)) return { externalId: nameOrId.slice(EXTERNAL_ID.length) }
  return USER_ID.test(nameOrId) ? { userId: nameOrId } : { username: nameOrId }
}

/** The user_id, for a service that knows no other; empty for none. */
export async function userIdOf({ admin }: Operator, nameOrId = ''): Promise<string> {
  if (nameOrId === '' || USER_ID.test(nameOrId)) return nameOrId
  const { user } = await admin.getUser(namedUser(nameOrId))
  return user?.userId ?? ''
}
