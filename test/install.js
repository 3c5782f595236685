// `node test/install.js` with the Node that is to be tried: packs the package, lints it, installs it where there is no compiler, as
// somebody does who types `npx survey-auth demo`, and runs the demo from there. Needs the registry. Exits 1 if something fails.
import { execFileSync, spawn } from 'node:child_process'
import { mkdirSync, mkdtempSync, readdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { fileURLToPath } from 'node:url'

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '..')
const folder = mkdtempSync(path.join(tmpdir(), 'survey-auth-install-'))
const bare = path.join(folder, 'bin')
const MOST_MS = 300_000

try {
  mkdirSync(bare)
  const which = (command) => execFileSync('which', [command], { encoding: 'utf8' }).trim()
  for (const tool of ['sh', 'env', 'uname', 'ldd', 'getconf']) symlinkSync(which(tool), path.join(bare, tool))
  symlinkSync(process.execPath, path.join(bare, 'node'))
  const npm = execFileSync('readlink', ['-f', which('npm')], { encoding: 'utf8' }).trim()
  execFileSync('npm', ['pack', '--silent', '--pack-destination', folder], { cwd: root, stdio: 'inherit' })
  const [tarball = ''] = readdirSync(folder).filter((name) => name.endsWith('.tgz'))
  execFileSync(path.join(root, 'node_modules/.bin/publint'), [path.join(folder, tarball), '--strict'], {
    stdio: 'inherit',
  })
  writeFileSync(path.join(folder, 'package.json'), '{}')
  const inBare = { cwd: folder, env: { ...process.env, PATH: bare }, timeout: MOST_MS }
  const install = [npm, 'install', `./${tarball}`, '--ignore-scripts', '--no-audit', '--no-fund']
  execFileSync(process.execPath, install, { ...inBare, stdio: 'inherit' })
  await runDemo(path.join(folder, 'node_modules/.bin/survey-auth'), inBare)
  process.stdout.write(`installed without a compiler, and the demo ran, on Node ${process.version}\n`)
} finally {
  rmSync(folder, { recursive: true, force: true })
}

/** Fulfils when it has started and stopped in order. */
function runDemo(program, { cwd, env }) {
  const child = spawn(program, ['demo'], { cwd, env: { PATH: env.PATH, HOME: cwd, PORT: '0', ADMIN_PORT: '0' } })
  let said = ''
  return new Promise((resolve, reject) => {
    const late = setTimeout(() => child.kill('SIGKILL'), MOST_MS)
    child.stdout.on('data', (chunk) => {
      said += chunk
      if (said.includes('Call every endpoint yourself')) child.kill('SIGTERM')
    })
    child.stderr.on('data', (chunk) => {
      said += chunk
    })
    child.on('close', (code) => {
      clearTimeout(late)
      if (code === 0) resolve()
      else reject(new Error(`the demo ended with ${code}:\n${said}`))
    })
  })
}
