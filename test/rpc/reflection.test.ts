// What reflection tells tools without protos; its messages are written and read by hand, as they are on the wire.
import { once } from 'node:events'
import { createFileRegistry, fromBinary } from '@bufbuild/protobuf'
import { BinaryReader, BinaryWriter, WireType } from '@bufbuild/protobuf/wire'
import { type FileDescriptorProto, FileDescriptorProtoSchema } from '@bufbuild/protobuf/wkt'
import * as grpc from '@grpc/grpc-js'
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest'
import { MultiplexService } from '../../gen/surveyauth/internal/v1/multiplex_service_pb.js'
import { AccountService } from '../../gen/surveyauth/v1/account_service_pb.js'
import { SurveyService } from '../../gen/surveyauth/v1/survey_service_pb.js'
import { addReflection } from '../../services/rpc/reflection.js'

const SERVICES = [AccountService, SurveyService, MultiplexService]

/** Field numbers of a ServerReflectionRequest, and of its response's content. */
const BY_FILENAME = 3
const BY_SYMBOL = 4
const FILES = 4

let server: grpc.Server
let address: string

beforeAll(async () => {
  server = new grpc.Server()
  addReflection(server, SERVICES)
  const port = await new Promise<number>((resolve, reject) => {
    server.bindAsync('127.0.0.1:0', grpc.ServerCredentials.createInsecure(), (error, bound) =>
      error ? reject(error) : resolve(bound),
    )
  })
  address = `127.0.0.1:${port}`
})
afterAll(() => server.forceShutdown())

const bytes = (message: Buffer) => message

/** Asks one question after the other on one stream. */
function asking(version: string) {
  const client = new grpc.Client(address, grpc.credentials.createInsecure())
  const path = `/grpc.reflection.${version}.ServerReflection/ServerReflectionInfo`
  const stream = client.makeBidiStreamRequest(path, bytes, bytes)
  onTestFinished(() => {
    stream.on('error', () => undefined).cancel()
    client.close()
  })
  return async (field: number, text: string): Promise<FileDescriptorProto[]> => {
    stream.write(Buffer.from(new BinaryWriter().tag(field, WireType.LengthDelimited).string(text).finish()))
    const [answer] = (await once(stream, 'data')) as [Buffer]
    return fieldsOf(answer, FILES)
      .flatMap((files) => fieldsOf(files, 1))
      .map((file) => fromBinary(FileDescriptorProtoSchema, file))
  }
}

/** The fields with a number, each as bytes. */
function fieldsOf(message: Uint8Array, number: number): Uint8Array[] {
  const reader = new BinaryReader(message)
  const found: Uint8Array[] = []
  while (reader.pos < reader.len) {
    const [field, wireType] = reader.tag()
    if (field === number) found.push(reader.bytes())
    else reader.skip(wireType, field)
  }
  return found
}

test.each(['v1', 'v1alpha'])(
  'reflection by %s returns every file that a service needs, with the same methods',
  async (version) => {
    const ask = asking(version)
    for (const service of SERVICES) {
      const file = new Map<string, FileDescriptorProto>()
      const wanted = new Set<string>()
      const take = (files: FileDescriptorProto[]) => {
        for (const each of files) {
          file.set(each.name, each)
          for (const imported of each.dependency) wanted.add(imported)
        }
      }
      take(await ask(BY_SYMBOL, service.typeName))
      for (const name of wanted) if (!file.has(name)) take(await ask(BY_FILENAME, name))

      expect([...file.keys()]).toEqual(expect.arrayContaining([service.file.proto.name, ...wanted]))
      const own = file.get(service.file.proto.name) as FileDescriptorProto
      const registry = createFileRegistry(own, (name) => file.get(name)) // throws when something is missing
      const described = registry.getService(service.typeName)
      const signature = (of: typeof described) =>
        of?.methods.map(({ name, input, output, idempotency }) => [name, input.typeName, output.typeName, idempotency])
      expect(signature(described)).toEqual(signature(service))
      expect(described?.file.proto.dependency).toEqual(service.file.proto.dependency)
    }
  },
)
