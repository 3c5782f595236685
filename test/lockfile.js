// `npm run lock`: completes package-lock.json after an `npm install` that changed it. With --check it only says what is
// missing, as `npm run check` does.
//
// The lockfile says two things that npm leaves out, so that on Node 22.14 and newer `npm ci` compiles nothing.
import { execFileSync } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'

const ADDED = {
  // As its own package.json says, which npm does not read here: it would run node-gyp, and drop the package where that fails.
  'node_modules/better-sqlite3': { gypfile: false },
  // The Nodes without Node-API 10, which version 13 needs. npm skips an optional package on any other.
  'node_modules/better-sqlite3-node20': { engines: { node: '<22.14 || 23.0 - 23.5' } },
}

const isCheck = process.argv.includes('--check')
const file = process.argv.slice(2).find((argument) => argument !== '--check') ?? 'package-lock.json'

const lock = JSON.parse(readFileSync(file, 'utf8'))
if (isCheck) check()
else complete()

function check() {
  const faults = faultsOf(lock.packages)
  if (faults.length === 0) return
  process.stdout.write(`${[...faults, 'run `npm run lock`'].join('\n')}\n`)
  process.exitCode = 1
}

function complete() {
  for (const [key, entry] of Object.entries(lock.packages)) lock.packages[key] = completed(key, entry)
  writeFileSync(file, `${JSON.stringify(lock, null, 2)}\n`)
}

function faultsOf(packages) {
  const incomplete = Object.entries(packages).flatMap(([key, entry]) => {
    if (key === '') return []
    return [
      ...(entry.integrity ? [] : [`${key} has no integrity`]),
      ...(entry.resolved === undefined ? [] : [`${key} names the registry it came from`]),
    ]
  })
  const bare = Object.entries(ADDED).filter(([key, added]) => {
    return JSON.stringify({ ...packages[key], ...added }) !== JSON.stringify(packages[key])
  })
  return [...incomplete, ...bare.map(([key, added]) => `${key} lacks ${JSON.stringify(added)}`)]
}

/** An entry with its integrity, which npm leaves out for other platforms, and without the registry that this machine uses. */
function completed(key, { name, version, integrity, resolved: _, ...rest }) {
  if (key === '') return { name, version, ...rest }
  const spec = `${name ?? key.split('node_modules/').at(-1)}@${version}`
  return { name, version, integrity: integrity ?? integrityOf(spec), ...rest, ...ADDED[key] }
}

function integrityOf(spec) {
  return execFileSync('npm', ['view', spec, 'dist.integrity'], { encoding: 'utf8' }).trim()
}
