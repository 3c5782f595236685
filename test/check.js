// `npm run check`: everything but the tests. The lockfile is whole, generated code is current, the protos are clean and
// compatible, format, lint and types are right. Each step prints one line; a failure prints what the tool said.

import { spawnSync } from 'node:child_process'
import { cpSync, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { fileURLToPath } from 'node:url'

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '..')
const tool = (name) => path.join(root, 'node_modules', '.bin', name)

const steps = [
  { name: 'package-lock.json is whole', run: () => run(process.execPath, ['test/lockfile.js', '--check']) },
  { name: 'gen/ is what the protos generate', run: genIsCurrent },
  { name: 'protos are clean (buf lint)', run: () => run(tool('buf'), ['lint']) },
  { name: 'protos are compatible (buf breaking)', run: protosAreCompatible },
  { name: 'format and lint (biome)', run: () => run(tool('biome'), ['check', '.']) },
  { name: 'types (tsc)', run: () => run(tool('tsc'), ['-p', 'tsconfig.json']) },
]

const failures = steps.filter(({ name, run: step }) => {
  const { isRight, note, output } = step()
  process.stdout.write(`${isRight ? 'ok  ' : 'FAIL'} ${name}${note ? `: ${note}` : ''}\n`)
  if (!isRight) process.stdout.write(`${output}\n`)
  return !isRight
})
process.exitCode = failures.length > 0 ? 1 : 0

function run(command, args, options = {}) {
  const { status, stdout, stderr } = spawnSync(command, args, {
    cwd: root,
    encoding: 'utf8',
    maxBuffer: 1 << 26,
    ...options,
  })
  return { isRight: status === 0, output: `${stdout ?? ''}${stderr ?? ''}`, stdout: stdout ?? '' }
}

/** Generates into a scratch copy and compares, so that a check never changes the tree. */
function genIsCurrent() {
  const scratch = mkdtempSync(path.join(tmpdir(), 'survey-auth-gen-'))
  try {
    for (const name of ['proto', 'buf.yaml', 'buf.gen.yaml'])
      cpSync(path.join(root, name), path.join(scratch, name), { recursive: true })
    const env = {
      ...process.env,
      PATH: `${path.join(root, 'node_modules', '.bin')}${path.delimiter}${process.env.PATH}`,
    }
    const generated = run(tool('buf'), ['generate'], { cwd: scratch, env })
    if (!generated.isRight) return generated
    const [expected, actual] = [filesIn(path.join(scratch, 'gen')), filesIn(path.join(root, 'gen'))]
    const names = [...new Set([...expected.keys(), ...actual.keys()])]
    const different = names.filter((name) => expected.get(name) !== actual.get(name))
    return { isRight: different.length === 0, output: `run \`npm run gen\` and commit: ${different.join(', ')}` }
  } finally {
    rmSync(scratch, { recursive: true, force: true })
  }
}

function filesIn(folder) {
  const entries = readdirSync(folder, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile())
  return new Map(
    entries.map((entry) => {
      const file = path.join(entry.parentPath, entry.name)
      return [path.relative(folder, file), readFileSync(file, 'utf8')]
    }),
  )
}

/** Compares with what the newest release of this major version has left; before the first one, protos may change. */
function protosAreCompatible() {
  const image = 'test/released/protos.binpb'
  if (!existsSync(path.join(root, image)))
    return { isRight: true, note: 'skipped, there is no release yet', output: '' }
  const [released, here] = ['test/released/promise.json', 'package.json'].map(versionIn)
  if (released.split('.')[0] !== here.split('.')[0])
    return { isRight: true, note: `skipped, ${released} was of another major version`, output: '' }
  return {
    ...run(tool('buf'), ['breaking', '--exclude-imports', '--against', image]),
    note: `with ${released}`,
  }
}

function versionIn(file) {
  return JSON.parse(readFileSync(path.join(root, file), 'utf8')).version
}
