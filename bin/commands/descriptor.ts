// survey-auth descriptor: the contract of the RPCs in binary form, for tools that cannot read it from a server.
import { chmodSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { type DescFile, fromBinary } from '@bufbuild/protobuf'
import { FileDescriptorSetSchema } from '@bufbuild/protobuf/wkt'
import type { Command } from 'commander'
import { unwritable } from '../error-code.js'
import { CommandError, EXIT } from '../exit.js'
import { message, printJson } from '../output.js'
import { examples } from './options.js'

/** Generated code, one module per proto: what others call, and the details of failures. */
const GENERATED = ['surveyauth/v1/', 'google/rpc/'].map((folder) => new URL(`../../gen/${folder}`, import.meta.url))

const NOTES = `
A google.protobuf.FileDescriptorSet: every file of surveyauth.v1, all they import, and the details of failures. It tells
what the RPCs are, so that reflection can stay off in production:
  $ survey-auth descriptor --out surveyauth.binpb
  $ grpcurl -protoset surveyauth.binpb describe surveyauth.v1.TokenService
`

export function addDescriptorCommand(program: Command): void {
  program
    .command('descriptor')
    .description('write the contract of the RPCs as a descriptor set, for grpcurl -protoset and proxies that translate')
    .option('--out <file>', 'where to write it, replacing an earlier one; stdout unless given')
    .option('--json', 'with --out: report in JSON what was written')
    .addHelpText('after', NOTES + examples('descriptor --out surveyauth.binpb', 'descriptor > surveyauth.binpb'))
    .action(writeDescriptor)
}

interface Options {
  readonly out?: string
  readonly json?: true
}

async function writeDescriptor({ out, json }: Options): Promise<void> {
  const { descriptorSet } = await import('../../services/rpc/reflection.js') // no other command needs these libraries
  const files = await everyFile()
  const services = files.flatMap((file) => file.services)
  const bytes = descriptorSet(files)
  if (out !== undefined) {
    const file = path.resolve(out)
    writePublic(file, bytes)
    if (json) printJson({ file, bytes: bytes.length, services: services.map(({ typeName }) => typeName) })
    else message(`${bytes.length} bytes written to ${file}`)
    return
  }
  if (json) throw new CommandError('a descriptor set is binary, --json goes with --out', EXIT.usage, TRY)
  if (process.stdout.isTTY) throw new CommandError('a descriptor set is binary, not for a terminal', EXIT.usage, TRY)
  process.stdout.write(bytes)
}

/** Found rather than listed, so that a service added to the package is never forgotten here. */
async function everyFile(): Promise<DescFile[]> {
  const urls = GENERATED.flatMap((folder) => {
    const names = readdirSync(folder).filter((name) => /_pb\.[jt]s$/.test(name))
    return names.sort().map((name) => new URL(name, folder).href)
  })
  const modules = await Promise.all(urls.map((url) => import(url)))
  return modules.flatMap((module: object) => Object.values(module).filter(isFile))
}

function isFile(value: unknown): value is DescFile {
  return typeof value === 'object' && value !== null && 'kind' in value && value.kind === 'file'
}

const TRY = 'survey-auth descriptor --out surveyauth.binpb'

/** Readable by all, unlike what other commands write: it is not secret, and a proxy reads it as another user. */
function writePublic(file: string, bytes: Uint8Array): void {
  try {
    const there = statSync(file, { throwIfNoEntry: false })
    if (there?.isFile() && !isReplaceable(readFileSync(file))) throw notReplaced(file)
    writeFileSync(file, bytes)
    if (!there || there.isFile()) chmodSync(file, 0o644) // /dev/null keeps its mode
  } catch (error) {
    throw error instanceof CommandError ? error : new CommandError(unwritable(file, error))
  }
}

/** Whether it is empty or an earlier descriptor set. */
function isReplaceable(bytes: Uint8Array): boolean {
  try {
    return bytes.length === 0 || fromBinary(FileDescriptorSetSchema, bytes).file.length > 0
  } catch {
    return false
  }
}

function notReplaced(file: string): CommandError {
  const hint = 'name another file, or remove this one'
  return new CommandError(`${file} holds something else than a descriptor set and is not replaced`, EXIT.failure, hint)
}
