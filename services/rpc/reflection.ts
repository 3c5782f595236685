// gRPC reflection from the same descriptors that serve the calls. Development only: it tells everyone what there is.
import { type DescFile, type DescService, toBinary } from '@bufbuild/protobuf'
import { FileDescriptorProtoSchema } from '@bufbuild/protobuf/wkt'
import type { Server } from '@grpc/grpc-js'
import { ReflectionService } from '@grpc/reflection'

/** What @grpc/reflection reads of a package: files, each encoded. Those made by proto-loader have lost their imports. */
type Package = ConstructorParameters<typeof ReflectionService>[0]

export function addReflection(server: Server, services: readonly DescService[]): void {
  const fileDescriptorProtos = withImports(services.map(({ file }) => file)).map((file) =>
    Buffer.from(toBinary(FileDescriptorProtoSchema, file.proto)),
  )
  new ReflectionService({ all: { fileDescriptorProtos } } as unknown as Package).addToServer(server)
}

/** The files and all they import, dependencies first. */
function withImports(roots: readonly DescFile[]): DescFile[] {
  const files = new Map<string, DescFile>()
  const visit = (file: DescFile) => {
    if (files.has(file.proto.name)) return
    file.dependencies.forEach(visit)
    files.set(file.proto.name, file)
  }
  roots.forEach(visit)
  return [...files.values()]
}
