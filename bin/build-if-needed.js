// Compiles the sources when dist/ is missing or older than them, so that every command works on a fresh clone. Processes
// that run from dist/ are not disturbed: the new one is built beside it and then takes its place as a whole.
import { spawnSync } from 'node:child_process'
import { existsSync, readdirSync, readFileSync, renameSync, rmSync, statSync, utimesSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { fileURLToPath } from 'node:url'

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '..')
const dist = path.join(root, 'dist')
const stamp = path.join(dist, '.built')
const sources = ['bin', 'gateway', 'gen', 'services', 'tsconfig.json', 'tsconfig.build.json']

/** Builds when needed; returns without doing anything in an installed package, which ships dist/ only. */
export function buildIfNeeded() {
  if (isCurrent()) return
  if (!existsSync(path.join(root, 'node_modules', 'typescript'))) {
    process.stderr.write(
      'survey-auth: not built yet, and the compiler is not installed; run: npm ci && npm run build\n',
    )
    process.exit(1)
  }
  const isBuilt = withLock(() => {
    if (isCurrent()) return true // another process was faster
    process.stderr.write('survey-auth: compiling ...\n')
    const tsc = path.join(root, 'node_modules', 'typescript', 'bin', 'tsc')
    const fresh = `${dist}.new`
    const startedAt = new Date()
    rmSync(fresh, { recursive: true, force: true })
    const { status } = spawnSync(process.execPath, [tsc, '-p', 'tsconfig.build.json', '--outDir', fresh], {
      cwd: root,
      stdio: ['ignore', 2, 2],
    })
    if (status !== 0) return false
    writeFileSync(path.join(fresh, '.commit'), `${commit()}\n`)
    const mark = path.join(fresh, '.built')
    writeFileSync(mark, '')
    utimesSync(mark, startedAt, startedAt) // what changed while it compiled is newer
    rmSync(dist, { recursive: true, force: true })
    renameSync(fresh, dist)
    return true
  })
  if (isBuilt) return
  process.stderr.write('survey-auth: compiling failed; after an update, run npm ci first\n')
  process.exit(1)
}

/** Of the sources: what SOURCE_COMMIT says, where an image is built without .git, or else git. */
function commit() {
  const git = (...args) => spawnSync('git', args, { cwd: root, encoding: 'utf8' })
  const { SOURCE_COMMIT } = process.env
  if (SOURCE_COMMIT) return SOURCE_COMMIT
  const head = git('rev-parse', '--short=12', 'HEAD')
  if (head.status !== 0) return 'unknown'
  const isClean = git('diff', '--quiet', 'HEAD', '--', ...sources, 'package.json').status === 0
  return `${head.stdout.trim()}${isClean ? '' : '-dirty'}`
}

function isCurrent() {
  if (!existsSync(stamp)) return false
  const present = sources.map((name) => path.join(root, name)).filter(existsSync)
  return present.length < sources.length || statSync(stamp).mtimeMs >= Math.max(...present.map(newestChange))
}

/** Time of the newest change below `file`, in ms. */
function newestChange(file) {
  const stat = statSync(file)
  if (!stat.isDirectory()) return stat.mtimeMs
  return Math.max(stat.mtimeMs, ...readdirSync(file).map((name) => newestChange(path.join(file, name))))
}

/** Longer than any build takes. A pid alone proves little: after a restart another process may have it. */
const LONGEST_BUILD_MS = 5 * 60_000

const LOOK_EVERY_MS = 100

/** Returns what `work` does while no other process builds; a lock left by a process that is gone is taken over. */
function withLock(work) {
  const lock = path.join(root, '.build-lock')
  while (!takeLock(lock)) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, LOOK_EVERY_MS)
  try {
    return work()
  } finally {
    rmSync(lock, { force: true })
  }
}

function takeLock(lock) {
  try {
    writeFileSync(lock, String(process.pid), { flag: 'wx' })
    return true
  } catch (error) {
    if (error.code !== 'EEXIST') throw error
    if (isAbandoned(lock)) rmSync(lock, { force: true })
    return false
  }
}

function isAbandoned(lock) {
  try {
    const pid = Number(readFileSync(lock, 'utf8'))
    const isOurs = pid === process.pid // in a container each start may get the same pid
    if (isOurs || Date.now() - statSync(lock).mtimeMs > LONGEST_BUILD_MS) return true
    process.kill(pid, 0)
    return false
  } catch (error) {
    return error.code === 'ESRCH'
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) buildIfNeeded()
