// The contract of the RPCs in binary form: complete, readable by the official libraries, and never on a terminal.
import { execFileSync } from 'node:child_process'
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { createFileRegistry, type FileRegistry, fromBinary } from '@bufbuild/protobuf'
import { FileDescriptorSetSchema } from '@bufbuild/protobuf/wkt'
import * as grpc from '@grpc/grpc-js'
import { loadFileDescriptorSetFromBuffer } from '@grpc/proto-loader'
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest'
import { createProgram } from '../../bin/main.js'

vi.setConfig({ testTimeout: 60_000, hookTimeout: 120_000 }) // each test spawns processes

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const PROGRAM = path.join(ROOT, 'bin/survey-auth.js')
const PROTOS = readdirSync(path.join(ROOT, 'proto/surveyauth/v1')).map((name) => `surveyauth/v1/${name}`)

let folder: string
let bytes: Buffer

beforeAll(() => {
  execFileSync(process.execPath, [path.join(ROOT, 'bin/build-if-needed.js')], { stdio: 'inherit' })
  folder = mkdtempSync(path.join(tmpdir(), 'survey-auth-descriptor-'))
  bytes = execFileSync(process.execPath, [PROGRAM, 'descriptor'])
})
afterAll(() => rmSync(folder, { recursive: true, force: true }))

function registryOf(set: Buffer): FileRegistry {
  return createFileRegistry(fromBinary(FileDescriptorSetSchema, set))
}

/** Runs the command in this process and throws what it throws. */
async function run(...args: string[]): Promise<void> {
  await createProgram().parseAsync(['node', 'survey-auth', 'descriptor', ...args])
}

describe('survey-auth descriptor', () => {
  test('writes every proto of the package and what they import, imports first', () => {
    const { file } = fromBinary(FileDescriptorSetSchema, bytes)
    const names = file.map(({ name }) => name)
    expect(names).toEqual(expect.arrayContaining(PROTOS))
    file.forEach(({ name, dependency }, index) => {
      for (const imported of dependency) expect(names.slice(0, index), `${name} imports it`).toContain(imported)
    })
  })

  test('has every service and method of the protos', () => {
    const written = PROTOS.flatMap((name) => {
      const text = readFileSync(path.join(ROOT, 'proto', name), 'utf8')
      return [...text.matchAll(/^\s*(service|rpc) (\w+)/gm)].map(([, , word]) => word)
    })
    const services = [...registryOf(bytes)].filter((type) => type.kind === 'service')
    const described = services.flatMap((service) => [service.name, ...service.methods.map((method) => method.name)])
    expect(described.sort()).toEqual(written.sort())
  })

  test('is enough for a gRPC client that has nothing else', () => {
    const loaded = grpc.loadPackageDefinition(loadFileDescriptorSetFromBuffer(bytes))
    expect(loaded).toHaveProperty('surveyauth.v1.TokenService.service.VerifyAccessToken.path')
  })

  test('--out writes the same bytes to a file that everyone may read, replacing an earlier one', () => {
    const file = path.join(folder, 'surveyauth.binpb')
    writeFileSync(file, Buffer.concat([bytes, bytes]), { mode: 0o600 }) // two sets in a row are one, longer than ours
    const out = execFileSync(process.execPath, [PROGRAM, 'descriptor', '--out', file], { stdio: 'pipe' })
    expect(out.toString()).toBe('')
    expect(readFileSync(file).equals(bytes)).toBe(true)
    expect(statSync(file).mode & 0o777).toBe(0o644)
  })

  test('--out --json reports what was written', () => {
    const file = path.join(folder, 'told.binpb')
    const args = [PROGRAM, 'descriptor', '--out', file, '--json']
    const told = JSON.parse(execFileSync(process.execPath, args, { encoding: 'utf8', stdio: 'pipe' }))
    expect(told).toMatchObject({ file, bytes: bytes.length })
    expect(told.services).toContain('surveyauth.v1.SurveyService')
  })

  test('a file that cannot be written is named', async () => {
    const file = path.join(folder, 'nowhere', 'x.binpb')
    const message = `cannot write ${file}: its folder does not exist`
    await expect(run('--out', file)).rejects.toMatchObject({ exitCode: 1, message })
  })

  test('binary is not written to a terminal, nor as JSON: a usage error says what to do instead', async () => {
    const wasTerminal = process.stdout.isTTY
    const write = vi.spyOn(process.stdout, 'write')
    const refusal = { exitCode: 2, hint: expect.stringContaining('--out') }
    try {
      await expect(run('--json')).rejects.toMatchObject(refusal)
      process.stdout.isTTY = true
      await expect(run()).rejects.toMatchObject(refusal)
      expect(write).not.toHaveBeenCalled()
    } finally {
      process.stdout.isTTY = wasTerminal
      write.mockRestore()
    }
  })
})
