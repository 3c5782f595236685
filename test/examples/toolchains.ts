// What runs the examples in other languages: stubs and programs, made as the examples' first comments say for Debian's tools.
import { execFileSync, spawnSync } from 'node:child_process'
import { copyFileSync, existsSync, mkdirSync } from 'node:fs'
import path from 'node:path'
import { fileURLToPath } from 'node:url'

export const ROOT = fileURLToPath(new URL('../..', import.meta.url))

const canRun = (...[command = '', ...args]: string[]) => spawnSync(command, args).status === 0
const whereIs = (command: string) => spawnSync('which', [command], { encoding: 'utf8' }).stdout.trim()

const pythonPlugin = whereIs('grpc_python_plugin')
const pythonProgram = ['python3', '/usr/bin/python3'].find((each) => canRun(each, '-c', 'import grpc, google.protobuf'))
/** A Python with grpcio, where stubs for it can be made too. */
export const python = pythonPlugin !== '' && canRun('protoc', '--version') ? pythonProgram : undefined

/** Debian's Go libraries, which need no module and no network. */
const GOCODE = '/usr/share/gocode'
const goLibraries = [
  'google.golang.org/grpc',
  'github.com/golang/protobuf/proto/registry.go',
  'github.com/mattn/go-sqlite3',
]
export const hasGo =
  ['go', 'protoc', 'protoc-gen-go', 'protoc-gen-go-grpc'].every(whereIs) &&
  goLibraries.every((name) => existsSync(path.join(GOCODE, 'src', name)))

/** Puts stubs of these files of proto/ into `folder`, for PYTHONPATH. */
export function makePythonStubs(folder: string, files: readonly string[]): void {
  const set = path.join(folder, 'surveyauth.binpb')
  execFileSync('node_modules/.bin/buf', ['build', '-o', set], { cwd: ROOT, stdio: 'pipe' })
  const out = [
    `--python_out=${folder}`,
    `--grpc_python_out=${folder}`,
    `--plugin=protoc-gen-grpc_python=${pythonPlugin}`,
  ]
  const all = ['buf/validate/validate.proto', ...files]
  execFileSync('protoc', [`--descriptor_set_in=${set}`, ...out, ...all], { stdio: 'pipe' })
}

/** Builds a Go program of examples/ in `folder`, as a package of `module` with stubs of these files; returns its path. */
export function buildGo(folder: string, source: string, module: string, files: readonly string[]): string {
  const cwd = path.join(folder, 'src', module)
  mkdirSync(cwd, { recursive: true })
  copyFileSync(path.join(ROOT, source), path.join(cwd, path.basename(source)))
  const all = ['buf/validate/validate.proto', ...files]
  const places = all.map((file) => `M${file}=${module}/gen/${path.dirname(file)}`)
  const option = [`module=${module}`, ...places].join(',')
  const out = ['--go_out=.', `--go_opt=${option}`, '--go-grpc_out=.', `--go-grpc_opt=${option}`]
  execFileSync('protoc', ['-I', path.join(ROOT, 'proto'), ...out, ...all], { cwd, stdio: 'pipe' })
  const program = path.join(folder, path.basename(source, '.go'))
  const env = { ...process.env, GO111MODULE: 'off', GOFLAGS: '', GOPATH: `${folder}:${GOCODE}` }
  execFileSync('go', ['build', '-tags', 'libsqlite3', '-o', program, module], { cwd, env, stdio: 'pipe' })
  return program
}
