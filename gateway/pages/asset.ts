// A file that pages refer to. Its address carries a hash of its content, so that a new version has a new address.
import { createHash } from 'node:crypto'
import { existsSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

/** Folder of these sources, whether this runs from the sources or from the compiled tree, which holds no assets. */
export const PAGES_FOLDER = join(packageRoot(dirname(fileURLToPath(import.meta.url))), 'gateway', 'pages')

export const PATHS = {
  style: '/connect/assets/style.css',
  script: '/connect/assets/page.js',
  logo: '/connect/assets/logo',
}

type Kind = keyof typeof PATHS

export interface Asset {
  readonly contentType: string
  readonly body: Uint8Array
  readonly version: string
  readonly href: string
}

export function assetOf(kind: Kind, contentType: string, body: Uint8Array): Asset {
  const version = versionOf(createHash('sha256').update(body).digest('base64url'))
  return { contentType, body, version, href: `${PATHS[kind]}?v=${version}` }
}

/** By the SHA-256 of its content. */
export function versionOf(hash: string): string {
  return hash.slice(0, 12)
}

export const APP_LOGOS = '/connect/assets/apps/'

export function appLogoHref(appid: string, logoHash: string): string {
  return `${APP_LOGOS}${encodeURIComponent(appid)}?v=${versionOf(logoHash)}`
}

/** A file of this folder. */
export function readOwn(file: string): Buffer {
  return readFileSync(join(PAGES_FOLDER, file))
}

function packageRoot(folder: string): string {
  if (existsSync(join(folder, 'package.json'))) return folder
  const parent = dirname(folder)
  if (parent === folder) throw new Error('no package.json above the gateway')
  return packageRoot(parent)
}
