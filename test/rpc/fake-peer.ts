// A token service at a socket that answers every call with its name, and stops, hangs, drains and refuses on command.
import { once } from 'node:events'
import { rmSync } from 'node:fs'
import net from 'node:net'
import { create, fromBinary, toBinary } from '@bufbuild/protobuf'
import * as grpc from '@grpc/grpc-js'
import {
  type MultiplexedCall,
  MultiplexedFailureSchema,
  type MultiplexedResult,
  MultiplexRequestSchema,
  MultiplexResponseSchema,
  MultiplexService,
} from '../../gen/surveyauth/internal/v1/multiplex_service_pb.js'
import { TokenService } from '../../gen/surveyauth/v1/token_service_pb.js'

type Stream = grpc.ServerDuplexStream<Buffer, Buffer>

const asIs = (bytes: Buffer) => bytes
const codec = { requestSerialize: asIs, requestDeserialize: asIs, responseSerialize: asIs, responseDeserialize: asIs }
const MULTIPLEX = {
  path: `/${MultiplexService.typeName}/Multiplex`,
  requestStream: true,
  responseStream: true,
  ...codec,
}
const CHECK = { path: '/grpc.health.v1.Health/Check', requestStream: false, responseStream: false, ...codec }

export class FakePeer {
  /** Names of the methods that were called. */
  readonly seen: string[] = []
  isServing = true
  /** Takes calls and answers none. */
  isSilent = false
  /** Answers calls as a service whose database hangs: later, that it cannot. */
  failsAfterMs: number | undefined
  /** Answers no health checks. */
  hangs = false
  /** Health checks that it did not answer, and nobody waits for any longer. */
  givenUp = 0
  /** Ends every stream with PERMISSION_DENIED. */
  refuses = false
  readonly #path: string
  readonly #name: string
  #streams: Stream[] = []
  #stop: (() => void) | undefined

  constructor(path: string, name: string) {
    this.#path = path
    this.#name = name
  }

  async start(): Promise<void> {
    const server = new grpc.Server()
    server.addService({ multiplex: MULTIPLEX }, { multiplex: (stream: Stream) => this.#serve(stream) })
    server.addService(
      { check: CHECK },
      {
        check: (call: grpc.ServerUnaryCall<Buffer, Buffer>, answer: grpc.sendUnaryData<Buffer>) => {
          if (!this.hangs) return answer(null, Buffer.from([8, this.isServing ? 1 : 2]))
          call.on('cancelled', () => {
            this.givenUp += 1
          })
        },
      },
    )
    const injector = server.createConnectionInjector(grpc.ServerCredentials.createInsecure())
    const connections: net.Socket[] = []
    const sockets = net.createServer((socket) => {
      connections.push(socket)
      injector.injectConnection(socket)
    })
    sockets.listen(this.#path)
    await once(sockets, 'listening')
    this.#stop = () => {
      sockets.close()
      for (const connection of connections) connection.destroy()
      server.forceShutdown()
      rmSync(this.#path, { force: true })
    }
  }

  /** As a crash does. */
  kill(): void {
    this.#stop?.()
    this.#stop = undefined
    this.#streams = []
  }

  /** Tells callers to go elsewhere. */
  drain(): void {
    for (const stream of this.#streams) stream.write(encoded([], true))
  }

  #serve(stream: Stream): void {
    if (this.refuses) {
      stream.emit('error', { code: grpc.status.PERMISSION_DENIED, details: 'not you' })
      return
    }
    this.#streams.push(stream)
    stream.sendMetadata(new grpc.Metadata())
    stream.on('end', () => stream.end())
    stream.on('data', (bytes: Buffer) => {
      const { calls } = fromBinary(MultiplexRequestSchema, bytes)
      this.seen.push(...calls.map(({ method }) => method.split('/').at(-1) ?? ''))
      if (this.isSilent) return
      if (this.failsAfterMs === undefined) stream.write(encoded(calls.map((call) => this.#answer(call))))
      else setTimeout(() => stream.write(encoded(calls.map(refused))), this.failsAfterMs)
    })
  }

  #answer({ id, method }: MultiplexedCall) {
    const { output } = TokenService.method[method.endsWith('ExchangeCode') ? 'exchangeCode' : 'verifyAccessToken']
    const value = toBinary(output, create(output, { openid: this.#name }))
    return { id, outcome: { case: 'response' as const, value } }
  }
}

const refused = ({ id }: MultiplexedCall) => {
  const value = create(MultiplexedFailureSchema, { code: grpc.status.UNAVAILABLE, message: 'the database hangs' })
  return { id, outcome: { case: 'failure' as const, value } }
}

function encoded(results: readonly Pick<MultiplexedResult, 'id' | 'outcome'>[], draining = false) {
  return Buffer.from(
    toBinary(MultiplexResponseSchema, create(MultiplexResponseSchema, { results: [...results], draining })),
  )
}
