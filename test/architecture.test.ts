import { readdirSync, readFileSync } from 'node:fs'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, test } from 'vitest'

const ROOT = fileURLToPath(new URL('..', import.meta.url))

/** What both services are built on. Neither imports the other: they meet in gen/. */
const SHARED = ['services/rpc', 'services/storage', 'gen']

/** What the files of a folder may import from this repository. */
const directions: readonly { readonly folder: string; readonly mayImport: readonly string[] }[] = [
  { folder: 'gen', mayImport: ['gen'] },
  { folder: 'gateway', mayImport: ['gateway', 'gen'] },
  { folder: 'services/storage', mayImport: ['services/storage'] },
  { folder: 'services/rpc', mayImport: ['services/rpc', 'services/storage', 'gen'] },
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

  test('the two engines of storage know nothing of each other, and storage itself of neither', () => {
    const others = { sqlite: 'postgres', postgres: 'sqlite' }
    const wrong = sourcesIn('services/storage').flatMap(({ file, imports }) => {
      const [, , engine = ''] = file.split(path.sep)
      const other = engine in others ? others[engine as keyof typeof others] : undefined
      const isOfStorage = engine.endsWith('.ts')
      return imports
        .filter(
          (target) => target.startsWith(`services/storage/${other}/`) || (isOfStorage && target.split('/').length > 3),
        )
        .map((target) => `${file} → ${target}`)
    })
    expect(wrong).toEqual([])
  })

  test('no files import each other in a circle', () => {
    const sources = ['bin', 'gateway', 'services', 'gen'].flatMap(sourcesIn)
    const importsOfFile = new Map(
      sources.map(({ file, imports }) => [file, imports.map((name) => name.replace(/\.js$/, '.ts'))]),
    )
    const [onPath, done] = [new Set<string>(), new Set<string>()]
    const circleFrom = (file: string): string[] | undefined => {
      if (onPath.has(file)) return [...onPath].slice([...onPath].indexOf(file))
      if (done.has(file)) return undefined
      onPath.add(file)
      for (const target of importsOfFile.get(file) ?? []) {
        const circle = circleFrom(target)
        if (circle) return circle
      }
      onPath.delete(file)
      done.add(file)
      return undefined
    }
    expect(sources.map(({ file }) => circleFrom(file)).find((circle) => circle !== undefined)).toBeUndefined()
  })

  test('only bin reads the environment', () => {
    const readers = ['gateway', 'services', 'gen']
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
