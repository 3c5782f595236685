// Server reflection, from the descriptors that serve the calls, for tools without protos: what others may call, and all that its
// messages and failures are made of.
import { createRegistry, type DescFile, type DescService, type MessageInitShape, toBinary } from '@bufbuild/protobuf'
import { FileDescriptorProtoSchema } from '@bufbuild/protobuf/wkt'
import { Code, type ServiceImpl } from '@connectrpc/connect'
import { file_google_rpc_error_details } from '../../gen/google/rpc/error_details_pb.js'
import type {
  ServerReflection,
  ServerReflectionRequest,
  ServerReflectionResponseSchema,
} from '../../gen/grpc/reflection/v1/reflection_pb.js'
import { file_surveyauth_v1_error } from '../../gen/surveyauth/v1/error_pb.js'

type Answer = NonNullable<MessageInitShape<typeof ServerReflectionResponseSchema>['messageResponse']>

/** What our own processes say to each other is nobody else's. */
const isInternal = ({ typeName }: DescService) => typeName.startsWith('surveyauth.internal.')

export function createReflection(all: readonly DescService[]): ServiceImpl<typeof ServerReflection> {
  const services = all.filter((service) => !isInternal(service))
  const files = withImports([
    ...services.map(({ file }) => file),
    file_surveyauth_v1_error,
    file_google_rpc_error_details,
  ])
  const registry = createRegistry(...files)
  const fileOf = (symbol: string) => registry.get(symbol)?.file ?? registry.get(parentOf(symbol))?.file

  function answer({ messageRequest: { case: kind, value } }: ServerReflectionRequest): Answer {
    switch (kind) {
      case 'listServices':
        return { case: 'listServicesResponse', value: { service: services.map(({ typeName: name }) => ({ name })) } }
      case 'fileByFilename':
        return withDescriptors(files.find(({ proto }) => proto.name === value))
      case 'fileContainingSymbol':
        return withDescriptors(fileOf(value))
      default:
        return failed(Code.Unimplemented, 'extensions come with the files that use them')
    }
  }

  return {
    async *serverReflectionInfo(requests) {
      for await (const request of requests) {
        yield { validHost: request.host, originalRequest: request, messageResponse: answer(request) }
      }
    },
  }
}

/** Of a method, a field or a value. */
const parentOf = (symbol: string) => symbol.slice(0, Math.max(0, symbol.lastIndexOf('.')))

function withDescriptors(file: DescFile | undefined): Answer {
  if (!file) return failed(Code.NotFound, 'nothing of this name is served here')
  const fileDescriptorProto = withImports([file]).map(({ proto }) => toBinary(FileDescriptorProtoSchema, proto))
  return { case: 'fileDescriptorResponse', value: { fileDescriptorProto } }
}

function failed(errorCode: Code, errorMessage: string): Answer {
  return { case: 'errorResponse', value: { errorCode, errorMessage } }
}

/** The files and all they import. Tools take the first for the one that they asked for. */
function withImports(roots: readonly DescFile[]): DescFile[] {
  const files = new Set<DescFile>()
  const visit = (file: DescFile) => {
    if (files.has(file)) return
    files.add(file)
    file.dependencies.forEach(visit)
  }
  roots.forEach(visit)
  return [...files]
}
