import { readdirSync, readFileSync } from 'node:fs'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, test } from 'vitest'

const ROOT = fileURLToPath(new URL('..', import.meta.url))

/** What both services are built on. Neither imports the other: they meet in gen/. */
const SHARED = [
  'event-loop',
  'services/collections',
  'services/rpc',
  'services/store',
  'services/sqlite',
  'services/postgres',
  'gen',
]

/** What the files of a folder may import from this repository. */
const directions: readonly { readonly folder: string; readonly mayImport: readonly string[] }[] = [
  { folder: 'gen', mayImport: ['gen'] },
  { folder: 'event-loop', mayImport: ['event-loop'] },
  { folder: 'gateway', mayImport: ['gateway', 'event-loop', 'gen'] },
  {
    folder: 'services/rpc',
    mayImport: ['services/rpc', 'services/store', 'services/collections', 'event-loop', 'gen'],
  },
  { folder: 'services/store', mayImport: ['services/store'] },
  {
    folder: 'services/sqlite',
    mayImport: ['services/sqlite', 'services/store', 'services/collections', 'event-loop'],
  },
  {
    folder: 'services/postgres',
    mayImport: ['services/postgres', 'services/store', 'services/collections', 'event-loop'],
  },
  {
    folder: 'services/copy',
    mayImport: ['services/copy', 'services/sqlite', 'services/postgres', 'services/store'],
  },
  { folder: 'services/protocol', mayImport: ['services/protocol'] },
  { folder: 'services/token', mayImport: ['services/token', 'services/protocol', ...SHARED] },
  { folder: 'services/survey', mayImport: ['services/survey', ...SHARED] },
]

function sourcesIn(folder: string): { file: string; text: string; imports: string[] }[] {
  return readdirSync(path.join(ROOT, folder), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.ts'))
    .map((name) => path.join(folder, name))
    .map((file) => ({ file, text: readFileSync(path.join(ROOT, file), 'utf8') }))
    .map(({ file, text }) => ({
      file,
      text,
      imports: importsOf(text).map((from) => path.join(path.dirname(file), from)),
    }))
}

function importsOf(text: string): string[] {
  return [...text.matchAll(/(?:from|import)\s*\(?\s*'(\.[^']+)'/g)].map(([, from = '']) => from)
}

describe('architecture', () => {
  test.each(directions)('$folder imports nothing from this repository but $mayImport', ({ folder, mayImport }) => {
    const sources = sourcesIn(folder)
    expect(sources.length).toBeGreaterThan(0)
    const wrong = sources.flatMap(({ file, imports }) =>
      imports
        .filter((target) => !mayImport.some((allowed) => `${target}/`.startsWith(`${allowed}/`)))
        .map((target) => `${file} → ${target}`),
    )
    expect(wrong).toEqual([])
  })

  test('only bin reads the environment', () => {
    const readers = ['event-loop', 'gateway', 'services', 'gen']
      .flatMap(sourcesIn)
      .filter(({ text }) => /process\.env|from 'node:process'/.test(text))
    expect(readers.map(({ file }) => file)).toEqual([])
  })

  test('code that makes decisions takes time and randomness from outside', () => {
    const askers = ['gateway/api', 'gateway/pages', 'services/token', 'services/survey']
      .flatMap(sourcesIn)
      .filter(({ text }) => /Date\.now\(|new Date\(\)|Math\.random\(/.test(text))
    expect(askers.map(({ file }) => file)).toEqual([])
  })

  test('a command loads only what all of them need: servers, drivers and other heavy packages come when they are used', () => {
    expect([...packagesLoadedBy('bin/main.ts')].sort()).toEqual([
      '@bufbuild/protobuf',
      '@connectrpc/connect',
      'commander',
      'pino',
    ])
  })
})

/** Packages that a file of this repository loads before anything runs, through whatever it imports from the repository. */
function packagesLoadedBy(file: string, seen = new Set<string>()): Set<string> {
  if (seen.has(file)) return new Set()
  seen.add(file)
  const text = readFileSync(path.join(ROOT, file), 'utf8')
  const froms = [...text.matchAll(/^(?:import|export) (?!type )[^='"]*from '([^']+)'/gm)].map(([, from = '']) => from)
  const own = froms.filter((from) => from.startsWith('.'))
  const others = froms.filter((from) => !from.startsWith('.') && !from.startsWith('node:'))
  const packages = others.map((from) => /^(@[^/]+\/)?[^/]+/.exec(from)?.[0] ?? from)
  const sources = own.map((from) => path.join(path.dirname(file), from).replace(/\.js$/, '.ts'))
  return new Set([...packages, ...sources.flatMap((source) => [...packagesLoadedBy(source, seen)])])
}
