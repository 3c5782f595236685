import { readFileSync } from 'node:fs'
import { errorCode } from './error-code.js'
import { packageFile, packageVersion } from './package-root.js'

/** What runs here. */
export interface BuildInfo {
  /** Of the package. */
  readonly version: string
  /** The commit that it was compiled from, `-dirty` behind it if sources had changed since; `unknown` without git. */
  readonly commit: string
}

/** Read from package.json, and from what bin/build-if-needed.js wrote when it compiled. */
export function buildInfo(): BuildInfo {
  return { version: packageVersion(), commit: commit() }
}

/** `1.0.0 (0123456789ab)` */
export function buildName({ version, commit }: BuildInfo = buildInfo()): string {
  return `${version} (${commit})`
}

function commit(): string {
  try {
    return readFileSync(packageFile('dist/.commit'), 'utf8').trim()
  } catch (error) {
    if (errorCode(error, '') === 'ENOENT') return 'unknown'
    throw error
  }
}
