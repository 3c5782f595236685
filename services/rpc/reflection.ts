// gRPC reflection from the same descriptors that serve the calls. Development only: it tells everyone what there is.
import { create, type DescFile, type DescService, toBinary } from '@bufbuild/protobuf'
import { FileDescriptorSetSchema } from '@bufbuild/protobuf/wkt'
import type { Server } from '@grpc/grpc-js'
import { loadFileDescriptorSetFromBuffer } from '@grpc/proto-loader'
import { ReflectionService } from '@grpc/reflection'

export function addReflection(server: Server, services: readonly DescService[]): void {
  new ReflectionService(loadFileDescriptorSetFromBuffer(descriptorSet(services))).addToServer(server)
}

/** A binary `google.protobuf.FileDescriptorSet` of the services and all they import, dependencies first. */
export function descriptorSet(services: readonly DescService[]): Buffer {
  const files = new Map<string, DescFile>()
  const visit = (file: DescFile) => {
    if (files.has(file.proto.name)) return
    file.dependencies.forEach(visit)
    files.set(file.proto.name, file)
  }
  for (const service of services) visit(service.file)
  const set = create(FileDescriptorSetSchema, { file: [...files.values()].map((file) => file.proto) })
  return Buffer.from(toBinary(FileDescriptorSetSchema, set))
}
