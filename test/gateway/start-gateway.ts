// Starts the gateway alone on a real socket, in front of fake services.

import type { Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { connect } from 'node:net'
import { create, type DescMessage, type DescMethodUnary, type MessageInitShape } from '@bufbuild/protobuf'
import { Code, ConnectError, createClient, type Transport, type UnaryResponse } from '@connectrpc/connect'
import { limitsOf } from '../../bin/compose/gateway-part.js'
import { readConfig } from '../../bin/config.js'
import { createGateway, type GatewayOptions, type RequestRecord } from '../../gateway/app.js'
import type { GatewayLimits } from '../../gateway/limits.js'
import { createLook } from '../../gateway/pages/look.js'
import { ErrorInfoSchema, RetryInfoSchema } from '../../gen/google/rpc/error_details_pb.js'
import { AccountService } from '../../gen/surveyauth/v1/account_service_pb.js'
import { ErrorReason } from '../../gen/surveyauth/v1/error_pb.js'
import { SurveyService } from '../../gen/surveyauth/v1/survey_service_pb.js'
import { TokenService } from '../../gen/surveyauth/v1/token_service_pb.js'

/** Answers of the services by RPC name; a missing RPC is unimplemented, but for ListSignInMethods: there are passwords. */
export type FakeServices = Readonly<Record<string, (request: Record<string, unknown>) => object | Promise<object>>>

export interface Call {
  readonly method: string
  readonly request: Record<string, unknown>
  readonly requestId: string | null
}

export interface RunningGateway extends AsyncDisposable {
  readonly url: string
  readonly port: number
  readonly server: Server
  readonly drain: (timeoutMs: number) => Promise<void>
  /** RPCs that were made. */
  readonly calls: Call[]
  readonly records: RequestRecord[]
  readonly unexpected: { error: unknown; requestId: string }[]
}

export interface GatewaySettings extends Partial<Omit<GatewayOptions, 'limits'>> {
  readonly services?: FakeServices
  readonly limits?: Partial<GatewayLimits>
}

export const defaultLimits = limitsOf(readConfig({}))

export async function startGateway(settings: GatewaySettings = {}): Promise<RunningGateway> {
  const { services: own, limits, ...options } = settings
  const services = { ListSignInMethods: () => ({ password: true }), ...own }
  const calls: Call[] = []
  const records: RequestRecord[] = []
  const unexpected: { error: unknown; requestId: string }[] = []
  const transport = fakeTransport(services, calls)
  const { server, drain } = createGateway({
    look: createLook(),
    token: createClient(TokenService, transport),
    account: createClient(AccountService, transport),
    survey: createClient(SurveyService, transport),
    publicUrl: new URL('http://127.0.0.1:8080'),
    httpErrorStatus: 'semantic',
    rpcTimeoutMs: 5_000,
    now: Date.now,
    randomBytes: (size) => new Uint8Array(size),
    trustedProxies: [],
    onRequest: (record) => records.push(record),
    onUnexpected: (error, requestId) => unexpected.push({ error, requestId }),
    ...options,
    limits: { ...defaultLimits, ...limits },
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as AddressInfo
  return {
    url: `http://127.0.0.1:${port}`,
    port,
    server,
    drain,
    calls,
    records,
    unexpected,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}

/** The failure a service answers with. */
export function refusal(
  reason: ErrorReason,
  code: Code,
  message = 'as the service says it',
  retryAfterSeconds = 0,
): ConnectError {
  return new ConnectError(message, code, undefined, [
    { desc: ErrorInfoSchema, value: { reason: ErrorReason[reason] ?? 'A_LATER_REASON', domain: 'survey-auth' } },
    ...(retryAfterSeconds > 0
      ? [{ desc: RetryInfoSchema, value: { retryDelay: { seconds: BigInt(retryAfterSeconds) } } }]
      : []),
  ])
}

/** Sends raw bytes and returns everything that comes back until the connection ends. */
export function sendRaw(port: number, ...pieces: readonly (string | Buffer)[]): Promise<string> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1')
    let received = ''
    socket.setEncoding('latin1')
    socket.on('data', (data) => {
      received += data
    })
    socket.on('error', () => resolve(received))
    socket.on('close', () => resolve(received))
    for (const piece of pieces) socket.write(piece)
  })
}

function fakeTransport(services: FakeServices, calls: Call[]): Transport {
  return {
    async unary<I extends DescMessage, O extends DescMessage>(
      method: DescMethodUnary<I, O>,
      signal: AbortSignal | undefined,
      _timeoutMs: number | undefined,
      header: ConstructorParameters<typeof Headers>[0],
      input: MessageInitShape<I>,
    ): Promise<UnaryResponse<I, O>> {
      if (signal?.aborted) throw new ConnectError('aborted', Code.Canceled)
      const request = input as Record<string, unknown>
      calls.push({ method: method.name, request, requestId: new Headers(header).get('x-request-id') })
      const all: FakeServices = { ListSignInMethods: () => ({ password: true }), ...services }
      const service = all[method.name]
      if (!service) throw new ConnectError(`${method.name} has no fake`, Code.Unimplemented)
      const message = create(method.output, (await service(request)) as MessageInitShape<O>)
      const none = new Headers()
      return { stream: false, service: method.parent, method, header: none, trailer: none, message }
    },
    stream() {
      throw new Error('the services have no streams')
    },
  }
}
