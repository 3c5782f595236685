// What compiles and runs the examples in other languages: their stubs are made by the command in their own first comments.
import { execFileSync, spawnSync } from 'node:child_process'
import { copyFileSync, existsSync, mkdirSync, readFileSync } from 'node:fs'
import path from 'node:path'
import { fileURLToPath } from 'node:url'

export const ROOT = fileURLToPath(new URL('../..', import.meta.url))

const canRun = (...[command = '', ...args]: string[]) => spawnSync(command, args).status === 0
const isHere = (command: string) => spawnSync('which', [command]).status === 0

const pythonProgram = ['python3', '/usr/bin/python3'].find((each) => canRun(each, '-c', 'import grpc, google.protobuf'))
/** A Python with grpcio, where stubs for it can be made too. */
export const python = ['protoc', 'grpc_python_plugin'].every(isHere) ? pythonProgram : undefined

/** Debian's Go libraries, which need no module and no network. */
const GOCODE = '/usr/share/gocode'
const goLibraries = [
  'google.golang.org/grpc',
  'github.com/golang/protobuf/proto/registry.go',
  'github.com/mattn/go-sqlite3',
]
export const hasGo =
  ['go', 'protoc-gen-go', 'protoc-gen-go-grpc'].every(isHere) &&
  goLibraries.every((name) => existsSync(path.join(GOCODE, 'src', name)))

/** Debian's Java libraries: grpc-java, and all it needs. */
const jars = [
  ...['api', 'context', 'core', 'netty', 'protobuf', 'protobuf-lite', 'stub'].map((name) => `grpc-${name}`),
  ...[
    'buffer',
    'codec',
    'codec-http',
    'codec-http2',
    'codec-socks',
    'common',
    'handler',
    'handler-proxy',
    'resolver',
  ].map((name) => `netty-${name}`),
  ...['', '-native-epoll', '-native-unix-common'].map((name) => `netty-transport${name}`),
  ...['geronimo-annotation-1.3-spec', 'guava', 'netty-tcnative', 'perfmark-api', 'protobuf'],
].map((name) => `/usr/share/java/${name}.jar`)
/** OpenSSL for netty, which looks for it under another name. */
const tcnative = ['x86_64', 'aarch64']
  .map((machine) => `/usr/lib/${machine}-linux-gnu/jni/libnetty-tcnative.so`)
  .find((file) => existsSync(file))
export const hasJava =
  ['javac', 'protoc', 'grpc_java_plugin'].every(isHere) &&
  tcnative !== undefined &&
  jars.every((file) => existsSync(file))

/** Makes the stubs of an example in `folder`. */
export function makeStubs(example: string, folder: string): void {
  const text = readFileSync(path.join(ROOT, example), 'utf8')
  const [command = 'false'] = /npx buf generate -o DIR [^']+'[^']+'/.exec(text) ?? []
  const script = command.replaceAll(/\n[/\s]*/g, ' ').replace('DIR', folder)
  execFileSync('sh', ['-c', script], { cwd: ROOT, stdio: 'pipe' })
}

/** Builds a Go program in `folder`, as a package of `module`; returns its path. */
export function buildGo(example: string, folder: string, module: string): string {
  const cwd = path.join(folder, 'src', module)
  mkdirSync(cwd, { recursive: true })
  copyFileSync(path.join(ROOT, example), path.join(cwd, path.basename(example)))
  makeStubs(example, cwd)
  const program = path.join(folder, path.basename(example, '.go'))
  const env = { ...process.env, GO111MODULE: 'off', GOFLAGS: '', GOPATH: `${folder}:${GOCODE}` }
  execFileSync('go', ['build', '-tags', 'libsqlite3', '-o', program, module], { cwd, env, stdio: 'pipe' })
  return program
}

/** Compiles a Java program in `folder`; returns the command that runs it. */
export function compileJava(example: string, folder: string): readonly string[] {
  makeStubs(example, folder)
  const [classes, stubs] = [path.join(folder, 'classes'), path.join(folder, 'stubs')]
  const args = ['-encoding', 'UTF-8', '-proc:none', '-d', classes, '-cp', jars.join(':'), '-sourcepath', stubs]
  execFileSync('javac', [...args, path.join(ROOT, example)], { stdio: 'pipe' })
  copyFileSync(tcnative ?? '', path.join(classes, 'libnetty_tcnative.so'))
  const classPath = [classes, ...jars].join(':')
  return ['java', `-Djava.library.path=${classes}`, '-cp', classPath, path.basename(example, '.java')]
}
