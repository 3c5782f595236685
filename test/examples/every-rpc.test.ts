// Every unary RPC of a real process, called with an empty request by the three kinds of client that other teams bring:
// grpc-js, grpcio and curl. All get the same answer, and it is the service's own.
import { execFileSync, spawnSync } from 'node:child_process'
import path from 'node:path'
import type { DescMethod } from '@bufbuild/protobuf'
import * as grpc from '@grpc/grpc-js'
import { expect, test } from 'vitest'
import { LimitService } from '../../gen/surveyauth/internal/v1/limit_service_pb.js'
import { SurveyProvider } from '../../gen/surveyauth/provider/v1/survey_provider_pb.js'
import { AccountService } from '../../gen/surveyauth/v1/account_service_pb.js'
import { AdminService } from '../../gen/surveyauth/v1/admin_service_pb.js'
import { SignInService } from '../../gen/surveyauth/v1/sign_in_service_pb.js'
import { SurveyService } from '../../gen/surveyauth/v1/survey_service_pb.js'
import { TokenService } from '../../gen/surveyauth/v1/token_service_pb.js'
import { pathOf } from '../../services/rpc/dispatcher.js'
import { startProcess } from '../harness/process.js'

const services = [
  TokenService,
  AccountService,
  AdminService,
  SignInService,
  LimitService,
  SurveyService,
  SurveyProvider,
]
const paths = services.flatMap(({ methods }): DescMethod[] => methods).map(pathOf)

/** Status of each RPC by its path, as gRPC names it: `OK`, `INVALID_ARGUMENT`. */
type Statuses = Record<string, string>

/** Statuses that mean nobody answered, or not as intended. */
const WRONG = ['UNIMPLEMENTED', 'INTERNAL', 'UNKNOWN', 'UNAVAILABLE', 'DEADLINE_EXCEEDED', 'UNAUTHENTICATED']

const python = ['python3', '/usr/bin/python3'].find((each) => spawnSync(each, ['-c', 'import grpc']).status === 0)
const PYTHON = `
import grpc, json, sys
channel = grpc.insecure_channel('unix:' + sys.argv[1])
as_is = lambda data: data
statuses = {}
for path in json.loads(sys.argv[2]):
    try:
        channel.unary_unary(path, as_is, as_is)(b'', timeout=20)
        statuses[path] = 'OK'
    except grpc.RpcError as error:
        statuses[path] = error.code().name
print(json.dumps(statuses))
`

async function byGrpcJs(socket: string): Promise<Statuses> {
  const client = new grpc.Client(`unix:${socket}`, grpc.credentials.createInsecure())
  const asIs = (bytes: Buffer) => bytes
  const statusOf = (rpc: string) =>
    new Promise<string>((resolve) => {
      client.makeUnaryRequest(rpc, asIs, asIs, Buffer.alloc(0), { deadline: Date.now() + 20_000 }, (error) =>
        resolve(grpc.status[error?.code ?? grpc.status.OK] ?? 'none'),
      )
    })
  const statuses = Object.fromEntries(await Promise.all(paths.map(async (rpc) => [rpc, await statusOf(rpc)])))
  client.close()
  return statuses as Statuses
}

function byGrpcio(program: string, socket: string): Statuses {
  return JSON.parse(
    execFileSync(program, ['-c', PYTHON, socket, JSON.stringify(paths)], { encoding: 'utf8' }),
  ) as Statuses
}

function byCurl(socket: string): Statuses {
  const call = ['--silent', '--unix-socket', socket, '--header', 'content-type: application/json', '--data', '{}']
  const statusOf = (rpc: string) => {
    const answer = execFileSync('curl', [...call, `http://localhost${rpc}`], { encoding: 'utf8' })
    const { code } = JSON.parse(answer) as { code?: unknown }
    return typeof code === 'string' ? code.toUpperCase() : 'OK'
  }
  return Object.fromEntries(paths.map((rpc) => [rpc, statusOf(rpc)]))
}

test(`all ${paths.length} RPCs answer grpc-js, grpcio and curl alike`, { timeout: 120_000 }, async () => {
  const service = await startProcess()
  const socket = path.join(service.dataDir, 'rpc.sock')
  const expected = await byGrpcJs(socket)
  for (const [rpc, status] of Object.entries(expected)) expect(WRONG, rpc).not.toContain(status)
  expect(Object.values(expected), 'some need no more than an empty request').toContain('OK')
  expect(byCurl(socket)).toEqual(expected)
  if (python !== undefined) expect(byGrpcio(python, socket)).toEqual(expected)
})
