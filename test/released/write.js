// `npm run promise`: writes into this folder what the version in package.json promises, for all that follow it to keep.
import { spawnSync } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { buildIfNeeded } from '../../bin/build-if-needed.js'

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '../..')
const read = (file) => JSON.parse(readFileSync(path.join(root, file), 'utf8'))
const tool = (name, ...args) => run(path.join(root, 'node_modules', '.bin', name), ...args)

buildIfNeeded()
tool('vitest', 'run', '--project', 'one process', 'test/released') // makes test/results/promise.json
const { version } = read('package.json')
writeFileSync(
  path.join(root, 'test/released/promise.json'),
  JSON.stringify({ version, ...read('test/results/promise.json') }),
)
tool('biome', 'format', '--write', 'test/released/promise.json')
tool('buf', 'build', '--path', 'proto/surveyauth', '--exclude-source-info', '-o', 'test/released/protos.binpb')

function run(command, ...args) {
  const { status } = spawnSync(command, args, { cwd: root, stdio: 'inherit' })
  if (status !== 0) process.exit(1)
}
