// What happens before a command: the build, on a tree whose compiler only makes the folder, and loading the program.
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { copyFileSync, existsSync, mkdirSync, readFileSync, utimesSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { BUILD, PROGRAM } from '../harness/spawn.js'
import { temporaryDirectory } from '../store/temporary-directory.js'

const COMPILER = `require('node:fs').mkdirSync(process.argv.at(-1))`
const FAILING_COMPILER = `console.error('error TS2307: Cannot find module'); process.exit(2)`

/** A tree that is not built, with a lock that holds `pid` and was made `minutesAgo`. */
function lockedTree(pid: number, minutesAgo: number, compilerSource = COMPILER): { root: string; lock: string } {
  const root = temporaryDirectory()
  const compiler = path.join(root, 'node_modules/typescript/bin')
  mkdirSync(compiler, { recursive: true })
  writeFileSync(path.join(compiler, 'tsc'), compilerSource)
  writeFileSync(path.join(root, 'package.json'), '{"type":"module"}')
  writeFileSync(path.join(root, 'node_modules/typescript/package.json'), '{}')
  mkdirSync(path.join(root, 'bin'))
  copyFileSync(BUILD, path.join(root, 'bin/build.js'))
  const lock = path.join(root, '.build-lock')
  writeFileSync(lock, String(pid))
  const madeAt = Date.now() / 1000 - minutesAgo * 60
  utimesSync(lock, madeAt, madeAt)
  return { root, lock }
}

/** Starts a build by a shell, after what `before` does with its pid, which the build then has. */
function build(root: string, before = '') {
  const child = spawn('sh', ['-c', `${before} exec "$0" bin/build.js`, process.execPath], { cwd: root })
  onTestFinished(() => void child.kill('SIGKILL'))
  const told = { stderr: '' }
  child.stderr.on('data', (chunk) => {
    told.stderr += chunk
  })
  return { told, ended: once(child, 'close', { signal: AbortSignal.timeout(20_000) }) }
}

test.each([
  ['of a process that is gone', 2 ** 30, 0, ''],
  ['that is older than any build', process.pid, 6, ''],
  ['with the pid of the build itself', process.pid, 0, 'printf $$ > .build-lock;'],
])('a lock %s is taken over', async (_, pid, minutesAgo, before) => {
  const { root, lock } = lockedTree(pid, minutesAgo)
  const { told, ended } = build(root, before)
  expect(await ended).toEqual([0, null])
  expect(told.stderr).toBe('survey-auth: compiling ...\n')
  expect([existsSync(path.join(root, 'dist/.built')), existsSync(lock)]).toEqual([true, false])
})

test('sources that do not compile are reported without a stack, and leave no lock', async () => {
  const { root, lock } = lockedTree(2 ** 30, 0, FAILING_COMPILER)
  const { told, ended } = build(root)
  expect(await ended).toEqual([1, null])
  expect(told.stderr.split('\n')).toEqual([
    'survey-auth: compiling ...',
    'error TS2307: Cannot find module',
    'survey-auth: compiling failed; after an update, run npm ci first',
    '',
  ])
  expect([existsSync(path.join(root, 'dist')), existsSync(lock)]).toEqual([false, false])
})

test.each([
  ['imports', `import 'not-installed'`, "Cannot find package 'not-installed' imported from "],
  [
    'requires',
    `import { createRequire } from 'node:module'; createRequire(import.meta.url)('not-installed')`,
    "Cannot find module 'not-installed'",
  ],
])('who starts a program that %s what is not installed is told to install it', (_, main, what) => {
  const root = temporaryDirectory()
  mkdirSync(path.join(root, 'bin'))
  mkdirSync(path.join(root, 'dist/bin'), { recursive: true })
  writeFileSync(path.join(root, 'package.json'), '{"type":"module"}')
  writeFileSync(path.join(root, 'dist/.built'), '')
  writeFileSync(path.join(root, 'dist/bin/main.js'), main)
  for (const file of [BUILD, PROGRAM]) copyFileSync(file, path.join(root, 'bin', path.basename(file)))
  const { status, stderr } = spawnSync(process.execPath, ['bin/survey-auth.js'], { cwd: root, encoding: 'utf8' })
  const [first, ...rest] = stderr.split('\n')
  expect(status).toBe(1)
  expect(first).toContain(`survey-auth: ${what}`)
  expect(rest).toEqual([expect.stringContaining(`run npm ci with this Node, ${process.version}`), ''])
})

test.each([
  ['what SOURCE_COMMIT says', 'export SOURCE_COMMIT=0123abc;', '0123abc\n'],
  ['unknown in a folder without git', 'export GIT_CEILING_DIRECTORIES=/;', 'unknown\n'],
])('a build remembers its commit: %s', async (_, before, expected) => {
  const { root } = lockedTree(2 ** 30, 0)
  expect(await build(root, before).ended).toEqual([0, null])
  expect(readFileSync(path.join(root, 'dist/.commit'), 'utf8')).toBe(expected)
})

test('the Node beside the program starts it, where the PATH has none', () => {
  const bin = temporaryDirectory()
  const program = path.join(bin, 'survey-auth.js')
  copyFileSync(PROGRAM, program)
  writeFileSync(path.join(bin, 'node'), '#!/bin/sh\necho "$@"\n', { mode: 0o755 })
  const { stdout } = spawnSync('/bin/sh', [program, 'app', 'list'], { env: { PATH: '/nowhere' }, encoding: 'utf8' })
  expect(stdout).toContain(`${program} app list\n`)
})
