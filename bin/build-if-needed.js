// Compiles the sources when dist/ is missing or older than them, so that every command works on a fresh clone.
// `--stamp` only records that dist/ is current; the build script calls it last.
import { execFileSync } from 'node:child_process'
import { existsSync, mkdirSync, readdirSync, statSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { fileURLToPath } from 'node:url'

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '..')
const stamp = path.join(root, 'dist', '.built')
const sources = ['bin', 'gateway', 'gen', 'services', 'tsconfig.json', 'tsconfig.build.json']

/** Time of the newest change below `file`, in ms. */
function newestChange(file) {
  const stat = statSync(file)
  if (!stat.isDirectory()) return stat.mtimeMs
  return Math.max(stat.mtimeMs, ...readdirSync(file).map((name) => newestChange(path.join(file, name))))
}

/** Builds when needed; returns without doing anything in an installed package, which ships dist/ only. */
export function buildIfNeeded() {
  const present = sources.map((name) => path.join(root, name)).filter(existsSync)
  if (present.length < sources.length && existsSync(stamp)) return
  if (existsSync(stamp) && statSync(stamp).mtimeMs >= Math.max(...present.map(newestChange))) return
  if (!existsSync(path.join(root, 'node_modules', 'typescript'))) {
    process.stderr.write(
      'survey-auth: not built yet, and the compiler is not installed; run: npm ci && npm run build\n',
    )
    process.exit(1)
  }
  process.stderr.write('survey-auth: compiling ...\n')
  const tsc = path.join(root, 'node_modules', 'typescript', 'bin', 'tsc')
  execFileSync(process.execPath, [tsc, '-p', 'tsconfig.build.json'], { cwd: root, stdio: ['ignore', 2, 2] })
  writeStamp()
}

function writeStamp() {
  mkdirSync(path.dirname(stamp), { recursive: true })
  writeFileSync(stamp, '')
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  if (process.argv.includes('--stamp')) writeStamp()
  else buildIfNeeded()
}
