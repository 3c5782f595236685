// The peers are dependencies of bench/ only, installed when first needed.
import { spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import path from 'node:path'
import { root } from './root.js'

export function installIfNeeded() {
  if (existsSync(path.join(root, 'bench', 'node_modules', '.package-lock.json'))) return // npm writes it last
  process.stderr.write('bench: installing what survey-auth is measured against ...\n')
  const { status } = spawnSync('npm', ['ci', '--prefix', 'bench', '--no-audit', '--no-fund'], {
    cwd: root,
    stdio: ['ignore', 2, 2],
  })
  if (status !== 0) throw new Error('npm ci --prefix bench failed')
}
