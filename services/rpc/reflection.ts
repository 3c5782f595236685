// gRPC reflection from the same descriptors that serve the calls. Development only: it tells everyone what there is.
import { create, type DescFile, type DescService, toBinary } from '@bufbuild/protobuf'
import { FileDescriptorProtoSchema, FileDescriptorSetSchema } from '@bufbuild/protobuf/wkt'
import type { Server } from '@grpc/grpc-js'
import { ReflectionService } from '@grpc/reflection'

/** What @grpc/reflection reads of a package: files, each encoded. Those made by proto-loader have lost their imports. */
type Package = ConstructorParameters<typeof ReflectionService>[0]

export function addReflection(server: Server, services: readonly DescService[]): void {
  const fileDescriptorProtos = filesOf(services).map((file) =>
    Buffer.from(toBinary(FileDescriptorProtoSchema, file.proto)),
  )
  new ReflectionService({ all: { fileDescriptorProtos } } as unknown as Package).addToServer(server)
}

/** A binary `google.protobuf.FileDescriptorSet` of the services and all they import, dependencies first. */
export function descriptorSet(services: readonly DescService[]): Buffer {
  const set = create(FileDescriptorSetSchema, { file: filesOf(services).map((file) => file.proto) })
  return Buffer.from(toBinary(FileDescriptorSetSchema, set))
}

/** The files of the services and all they import, dependencies first. */
function filesOf(services: readonly DescService[]): DescFile[] {
  const files = new Map<string, DescFile>()
  const visit = (file: DescFile) => {
    if (files.has(file.proto.name)) return
    file.dependencies.forEach(visit)
    files.set(file.proto.name, file)
  }
  for (const service of services) visit(service.file)
  return [...files.values()]
}
