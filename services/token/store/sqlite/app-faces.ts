import type { Connection } from '../../../storage/sqlite/open.js'
import { type AppFace, changedOfFace, type FaceChange, NO_FACE, type StoredLogo } from '../token-store.js'

export function appFaceReads(db: Connection) {
  const find = db.prepare<[string], AppFace>(
    // Primary key.
    `SELECT home_page AS homePage, description, contact, privacy_link AS privacyLink, logo_hash AS logoHash
     FROM app_faces WHERE appid = ?`,
  )
  const findLogo = db.prepare<[string], StoredLogo>(
    // Primary key.
    `SELECT logo_hash AS logoHash, logo_type AS contentType, logo AS body FROM app_faces
     WHERE appid = ? AND logo_hash <> ''`,
  )
  return {
    findAppFace: (appid: string): AppFace => find.get(appid) ?? NO_FACE,
    findAppLogo: (appid: string): StoredLogo | undefined => findLogo.get(appid),
  }
}

/** Sets what is given; returns the columns that differ. */
export function appFaceSetter(db: Connection): (appid: string, change: FaceChange) => string[] {
  const { findAppFace } = appFaceReads(db)
  const set = db.prepare<[AppFace & { readonly appid: string }]>(
    // Primary key.
    `INSERT INTO app_faces (appid, home_page, description, contact, privacy_link)
     VALUES (:appid, :homePage, :description, :contact, :privacyLink)
     ON CONFLICT (appid) DO UPDATE SET home_page = :homePage, description = :description, contact = :contact,
       privacy_link = :privacyLink`,
  )
  const setLogo = db.prepare<[StoredLogo & { readonly appid: string }]>(
    // Primary key.
    'UPDATE app_faces SET logo_hash = :logoHash, logo_type = :contentType, logo = :body WHERE appid = :appid',
  )
  return (appid, { logo, ...texts }) => {
    const before = findAppFace(appid)
    const after = { ...before, ...texts, ...(logo && { logoHash: logo.logoHash }) }
    const changed = changedOfFace(before, after)
    if (changed.length > 0) set.run({ appid, ...after })
    if (logo && changed.includes('logo')) setLogo.run({ appid, ...logo })
    return changed
  }
}
