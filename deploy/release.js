// `npm run release`: makes what a release consists of, in release/:
//   survey-auth-VERSION.tgz                    the package for the npm registry (npm publish survey-auth-VERSION.tgz)
//   survey-auth-VERSION-PLATFORM-ARCH.tar.gz   the same with all packages and this machine's Node inside: unpack, and run ./survey-auth
//   survey-auth-VERSION.cdx.json               what is in it, as CycloneDX
//   SHA256SUMS
// The same commit, Node and npm make the same archive: times are those of the commit, and versions those of package-lock.json.
import { execFileSync, spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { copyFileSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { fileURLToPath } from 'node:url'

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '..')
const out = path.join(root, 'release')
const { version } = JSON.parse(readFileSync(path.join(root, 'package.json'), 'utf8'))
const name = `survey-auth-${version}`

/** Starts the program with the Node beside it, also by a link. */
const LAUNCHER = `#!/bin/sh
exec "$(dirname -- "$(readlink -f -- "$0")")/bin/survey-auth.js" "$@"
`

rmSync(out, { recursive: true, force: true })
mkdirSync(out)
run('npm', ['pack', '--silent', '--pack-destination', out])
writeFileSync(path.join(out, `${name}.cdx.json`), bill())
archive(`${name}-${process.platform}-${process.arch}`)
const sums = readdirSync(out).map((file) => `${sha256(path.join(out, file))}  ${file}\n`)
writeFileSync(path.join(out, 'SHA256SUMS'), sums.join(''))
process.stdout.write(sums.join(''))

/** The installed production packages; without the serial number and the time, which differ each time. */
function bill() {
  const text = run('npm', ['sbom', '--sbom-format=cyclonedx', '--omit=dev', '--package-lock-only'])
  const { serialNumber, ...document } = JSON.parse(text)
  delete document.metadata.timestamp
  return `${JSON.stringify(document, null, 2)}\n`
}

function archive(called) {
  const folder = mkdtempSync(path.join(tmpdir(), 'survey-auth-release-'))
  const program = path.join(folder, called)
  mkdirSync(program)
  run('tar', ['-xzf', path.join(out, `${name}.tgz`), '--strip-components=1', '-C', program])
  run('npm', ['ci', '--omit=dev', '--ignore-scripts', '--no-audit', '--no-fund'], program)
  copyFileSync(process.execPath, path.join(program, 'bin', 'node'))
  writeFileSync(path.join(program, 'survey-auth'), LAUNCHER, { mode: 0o755 })
  tryOut(path.join(program, 'survey-auth'), path.join(folder, 'data'))
  const committedAt = run('git', ['log', '-1', '--format=%ct']).trim()
  const same = ['--sort=name', `--mtime=@${committedAt}`, '--owner=0', '--group=0', '--numeric-owner']
  run('tar', [...same, '--use-compress-program=gzip -n', '-cf', path.join(out, `${called}.tar.gz`), called], folder)
  rmSync(folder, { recursive: true })
}

/** Makes databases where the PATH has no Node. Without its driver of SQLite, which npm compiles for Node 20, it would not. */
function tryOut(program, dataDir) {
  const env = { PATH: '/usr/bin:/bin', DATA_DIR: dataDir }
  const { status, stderr } = spawnSync(program, ['migrate'], { env, encoding: 'utf8' })
  if (status === 0) return
  process.stderr.write(`${stderr}this archive does not run; a release is made with Node 22.14 or newer\n`)
  process.exit(1)
}

function run(command, args, cwd = root) {
  return execFileSync(command, args, {
    cwd,
    encoding: 'utf8',
    maxBuffer: 1 << 26,
    stdio: ['ignore', 'pipe', 'inherit'],
  })
}

function sha256(file) {
  return createHash('sha256').update(readFileSync(file)).digest('hex')
}
