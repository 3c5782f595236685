import type { Database, Statement, Transaction } from '../../../storage/postgres/transaction.js'
import {
  type AppFace,
  changedOfFace,
  type FaceChange,
  NO_FACE,
  type StoredLogo,
  type TokenStore,
} from '../token-store.js'

/** By the primary key, as are the others. */
const findFace: Statement = {
  name: 'find_app_face',
  text: `
    SELECT home_page AS "homePage", description, contact, privacy_link AS "privacyLink", logo_hash AS "logoHash"
    FROM app_faces WHERE appid = $1`,
}
const findLogo: Statement = {
  name: 'find_app_logo',
  text: `
    SELECT logo_hash AS "logoHash", logo_type AS "contentType", logo AS body FROM app_faces
    WHERE appid = $1 AND logo_hash <> ''`,
}
const setFaceTexts: Statement = {
  name: 'set_app_face',
  text: `
    INSERT INTO app_faces (appid, home_page, description, contact, privacy_link) VALUES ($1, $2, $3, $4, $5)
    ON CONFLICT (appid) DO UPDATE SET home_page = $2, description = $3, contact = $4, privacy_link = $5`,
}
const setLogo: Statement = {
  name: 'set_app_logo',
  text: 'UPDATE app_faces SET logo_hash = $2, logo_type = $3, logo = $4 WHERE appid = $1',
}

export function createAppFaceMethods(database: Database): Pick<TokenStore, 'findAppFace' | 'findAppLogo'> {
  return {
    findAppFace: async (appid) => (await database.readOne<AppFace>(findFace, [appid])) ?? NO_FACE,
    findAppLogo: (appid) => database.readOne<StoredLogo>(findLogo, [appid]),
  }
}

/** Sets what is given, behind the lock of the app; returns the columns that differ. */
export async function setFace(
  transaction: Transaction,
  appid: string,
  { logo, ...texts }: FaceChange,
): Promise<readonly string[]> {
  const before = (await transaction.askOne<AppFace>(findFace, [appid])) ?? NO_FACE
  const after = { ...before, ...texts, ...(logo && { logoHash: logo.logoHash }) }
  const changed = changedOfFace(before, after)
  const { homePage, description, contact, privacyLink } = after
  if (changed.length > 0) transaction.write(setFaceTexts, [appid, homePage, description, contact, privacyLink])
  if (logo && changed.includes('logo')) transaction.write(setLogo, [appid, logo.logoHash, logo.contentType, logo.body])
  return changed
}
