// The demo's account, whose password is in this repository. The account itself marks a demo's data: the mark survives a
// backup, a copy to PostgreSQL and a moved file, and is gone once the password is changed.
import { readStoredHash } from '../../services/token/password/stored-hash.js'
import { tokenCopy } from '../compose/copied-schemas.js'
import { readOnce } from '../compose/database-file.js'
import type { Environment } from '../config.js'
import { isLoopback } from '../loopback.js'
import type { Database } from '../settings.js'

/** Known to everybody who reads this. */
export const DEMO_USER = { username: 'demo', password: 'demo-password', nickname: '小明 (demo)', avatar: '' } as const

/** What to do about it. */
export const ANOTHER_PASSWORD = `survey-auth user set-password ${DEMO_USER.username} --password-stdin, or user disable ${DEMO_USER.username}`

/** Why that account must not be there: others than this machine's user could sign in to it. undefined when they could not. */
export function whyNoDemo(env: Environment, publicUrl?: URL): string | undefined {
  if (env.NODE_ENV === 'production') return 'NODE_ENV is production'
  if (env.HOST && !isLoopback(env.HOST)) return 'HOST is not loopback'
  return publicUrl && !isLoopback(publicUrl.hostname) ? 'PUBLIC_URL is not loopback' : undefined
}

/** Whether anybody who knows its password can sign in to it. Changes nothing. @throws when the database is unavailable */
export async function hasDemoAccount(database: Database): Promise<boolean> {
  const [user] = await usersCalled(DEMO_USER.username, database)
  return user !== undefined && readStoredHash(user.password_hash).matches(DEMO_USER.password)
}

/** Users of this name who may sign in: one or none. Every schema version has these columns. */
async function usersCalled(username: string, database: Database): Promise<{ readonly password_hash: string }[]> {
  if (database.kind === 'sqlite') {
    const sql = 'SELECT password_hash FROM users WHERE username = ? AND is_disabled = 0'
    return readOnce(database.file, tokenCopy.sqlite, sql, [username])
  }
  const postgres = await import('../../services/storage/postgres/open.js') // loads the driver: only here
  const sql = 'SELECT password_hash FROM users WHERE username = $1 AND NOT is_disabled'
  return postgres.readOnce(database.url, tokenCopy.postgres, sql, [username])
}
