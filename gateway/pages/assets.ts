// The files pages refer to, read once at start. The only answers of the service that may be cached: their address
// carries a hash of their content, so that a new version has a new address. At the address of another version, which a page
// from another gateway has during a rolling update, they are served but not cached.
import { createHash } from 'node:crypto'
import { existsSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { Route } from '../http.js'

/** Folder of these sources, whether this runs from the sources or from the compiled tree, which holds no assets. */
export const PAGES_FOLDER = join(packageRoot(dirname(fileURLToPath(import.meta.url))), 'gateway', 'pages')

const KEPT = 'public, max-age=31536000, immutable' // a year, the longest that caches are asked to honour

interface Asset {
  readonly path: string
  readonly version: string
  readonly href: string
  readonly contentType: string
  readonly body: Buffer
}

export const style = readAsset('style.css', 'text/css; charset=utf-8')
export const script = readAsset('page.js', 'text/javascript; charset=utf-8')
export const icon = readAsset('icon.svg', 'image/svg+xml')

export const assetRoutes: readonly Route[] = [style, script, icon].map((asset) => ({
  name: 'asset',
  method: 'GET',
  path: asset.path,
  kind: 'page',
  answer: async (request) => ({
    status: 200,
    headers: {
      'content-type': asset.contentType,
      'cache-control': request.query().optional('v', 35) === asset.version ? KEPT : 'no-store',
      'x-content-type-options': 'nosniff',
      'content-security-policy': "default-src 'none'",
    },
    body: asset.body,
    outcome: 'asset',
  }),
}))

function readAsset(name: string, contentType: string): Asset {
  const body = readFileSync(join(PAGES_FOLDER, name))
  const version = createHash('sha256').update(body).digest('base64url').slice(0, 12)
  const path = `/connect/assets/${name}`
  return { path, version, href: `${path}?v=${version}`, contentType, body }
}

function packageRoot(folder: string): string {
  if (existsSync(join(folder, 'package.json'))) return folder
  const parent = dirname(folder)
  if (parent === folder) throw new Error('no package.json above the gateway')
  return packageRoot(parent)
}
