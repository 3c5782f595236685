// Which user a command means.
import type { User } from '../../gen/surveyauth/v1/admin_service_pb.js'
import { notFound } from '../../services/token/admin/apps.js'
import { type Operator, pagesOf, unlessMissing } from '../compose/operator.js'
import { CommandError, EXIT, WHERE_TO_LOOK } from '../exit.js'

type Admin = Operator['admin']

/** How every user_id begins. */
const USER_ID = /^user_/

/** What an external_id is written after, where a command takes a user: no name holds a colon. */
export const EXTERNAL_ID = 'external_id:'

export type NamedUser = { readonly username: string } | { readonly userId: string } | { readonly externalId: string }

/** How a request names the user with this name, user_id or external_id; a name wins. */
export async function namedUser(admin: Admin, nameOrId: string): Promise<NamedUser> {
  if (nameOrId.startsWith(EXTERNAL_ID)) return { externalId: nameOrId.slice(EXTERNAL_ID.length) }
  return USER_ID.test(nameOrId) && !(await isName(admin, nameOrId)) ? { userId: nameOrId } : { username: nameOrId }
}

/** A filter that narrows a list to this user, who may be deleted if named by user_id; a name wins. Empty for all. */
export async function userFilter(admin: Admin, nameOrId: string): Promise<NamedUser> {
  if (nameOrId.startsWith(EXTERNAL_ID)) return namedUser(admin, nameOrId)
  if (nameOrId === '' || (await isName(admin, nameOrId))) return { username: nameOrId }
  if (USER_ID.test(nameOrId)) return { userId: nameOrId }
  const hint = `${WHERE_TO_LOOK.user}; a deleted one goes by user_id, which is beside the name in: survey-auth audit list --kind user.created`
  throw new CommandError(notFound('user', nameOrId).message, EXIT.failure, hint)
}

/** The same for a service that knows no names. */
export async function userIdOfFilter(admin: Admin, filter: NamedUser): Promise<string> {
  if ('userId' in filter) return filter.userId
  if ('username' in filter && filter.username === '') return ''
  const { user } = await admin.getUser(filter)
  return user?.userId ?? ''
}

/** Whether a user has this name. */
async function isName(admin: Admin, username: string): Promise<boolean> {
  return (await unlessMissing(admin.getUser({ username }))) !== undefined
}

export function pagesOfUsers(admin: Admin): AsyncIterable<readonly User[]> {
  return pagesOf(async (pageToken) => {
    const page = await admin.listUsers({ pageSize: 1000, pageToken })
    return { rows: page.users, nextPageToken: page.nextPageToken }
  })
}
