// A server at TOKEN_SERVICE_URL or SURVEY_SERVICE_URL that is not what this process needs: it is not ready, and says why.
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import * as grpc from '@grpc/grpc-js'
import { HealthImplementation } from 'grpc-health-check'
import { expect, onTestFinished, test } from 'vitest'
import { start } from '../../bin/compose/start.js'
import { readConfig } from '../../bin/config.js'
import { MultiplexService } from '../../gen/surveyauth/internal/v1/multiplex_service_pb.js'
import { SurveyService } from '../../gen/surveyauth/v1/survey_service_pb.js'
import { TokenService } from '../../gen/surveyauth/v1/token_service_pb.js'
import { mayCall } from '../../services/rpc/callers.js'
import { Dispatcher, type Handlers, pathOf } from '../../services/rpc/dispatcher.js'
import { parseCallers } from '../../services/rpc/identity.js'
import { startRpcServer } from '../../services/rpc/rpc-server.js'
import { collectLog } from '../harness/collect-log.js'
import { freePort } from '../harness/free-port.js'

function folder(): string {
  const made = mkdtempSync(path.join(tmpdir(), 'survey-auth-peers-'))
  onTestFinished(() => rmSync(made, { recursive: true, force: true }))
  return made
}

const asIs = (bytes: Buffer) => bytes
const AS_BYTES = {
  requestSerialize: asIs,
  requestDeserialize: asIs,
  responseSerialize: asIs,
  responseDeserialize: asIs,
}

/** Answers every health check with SERVING, whatever it is asked about. */
function addCarelessHealth(server: grpc.Server): void {
  const check = { path: '/grpc.health.v1.Health/Check', requestStream: false, responseStream: false, ...AS_BYTES }
  server.addService(
    { check },
    { check: (_: unknown, callback: grpc.sendUnaryData<Buffer>) => callback(null, Buffer.from([8, 1])) },
  )
}

function addHealth(server: grpc.Server, ...services: readonly string[]): void {
  new HealthImplementation(Object.fromEntries(['', ...services].map((name) => [name, 'SERVING']))).addToServer(server)
}

function addTokenService(server: grpc.Server): void {
  const path = pathOf(TokenService.method.verifyAccessToken)
  const verify = { path, requestStream: false, responseStream: false, ...AS_BYTES }
  server.addService(
    { verify },
    { verify: (_: unknown, callback: grpc.sendUnaryData<Buffer>) => callback(null, Buffer.alloc(0)) },
  )
}

/** Accepts the stream, and answers nothing on it. */
function addMultiplex(server: grpc.Server): void {
  const multiplex = {
    path: pathOf(MultiplexService.method.multiplex),
    requestStream: true,
    responseStream: true,
    ...AS_BYTES,
  }
  server.addService(
    { multiplex },
    { multiplex: (stream: grpc.ServerDuplexStream<Buffer, Buffer>) => stream.sendMetadata(new grpc.Metadata()) },
  )
}

async function serve(...adds: readonly ((server: grpc.Server) => void)[]): Promise<string> {
  const server = new grpc.Server()
  for (const add of adds) add(server)
  const address = `unix:${folder()}/foreign.sock`
  await new Promise<void>((resolve, reject) => {
    server.bindAsync(address, grpc.ServerCredentials.createInsecure(), (error) => (error ? reject(error) : resolve()))
  })
  onTestFinished(() => server.forceShutdown())
  return address
}

const NO_STREAM = `it does not serve ${MultiplexService.typeName}: another version of survey-auth, or another server`

test.each([
  ['only health, for whatever it is asked', [addCarelessHealth], NO_STREAM],
  ['only health', [(server: grpc.Server) => addHealth(server)], NO_STREAM],
  [
    'health and TokenService',
    [(server: grpc.Server) => addHealth(server, TokenService.typeName), addTokenService],
    NO_STREAM,
  ],
  ['only TokenService', [addTokenService], /does not implement the method .*Health\/Check/],
  [
    'all that is needed but one service',
    [(server: grpc.Server) => addHealth(server, MultiplexService.typeName), addMultiplex],
    `it does not serve ${TokenService.typeName}: another version of survey-auth, or another server`,
  ],
])('a survey service is not ready when its token service serves %s', async (_, adds, cause) => {
  const url = await serve(...adds)
  const { logStream, lines } = collectLog()
  const env = { DATA_DIR: folder(), ADMIN_PORT: '0', TOKEN_SERVICE_URL: url }
  const running = await start('survey', readConfig(env), { logStream })
  onTestFinished(() => running.close())
  const lacks = [`token service at ${url}: unavailable`]
  expect(await running.readiness()).toEqual({ isReady: false, lacks })
  await expect.poll(() => lines.join(''), { timeout: 10_000 }).toMatch(/not ready: token service at/)
  expect(lines.join('')).toMatch(cause)
  expect(await running.readiness(), 'and stays so').toEqual({ isReady: false, lacks })
})

test('a gateway is not ready when SURVEY_SERVICE_URL names a token service, and is once it names a survey service', async () => {
  const [DATA_DIR, ADMIN_PORT] = [folder(), '0']
  const token = await start('token', readConfig({ DATA_DIR, ADMIN_PORT }), collectLog())
  onTestFinished(() => token.close())
  const survey = await start('survey', readConfig({ DATA_DIR, ADMIN_PORT }), collectLog())
  onTestFinished(() => survey.close())
  const wrong = `unix:${DATA_DIR}/token.sock`
  const { logStream, lines } = collectLog()
  const env = { DATA_DIR, ADMIN_PORT, PORT: String(await freePort()), SURVEY_SERVICE_URL: wrong }
  const gateway = await start('gateway', readConfig(env), { logStream })
  onTestFinished(() => gateway.close())
  expect(await gateway.readiness()).toEqual({ isReady: false, lacks: [`survey service at ${wrong}: unavailable`] })
  await expect.poll(() => lines.join(''), { timeout: 10_000 }).toContain(`it does not serve ${SurveyService.typeName}`)
  const right = await start('gateway', readConfig({ DATA_DIR, ADMIN_PORT, PORT: '0' }), collectLog())
  onTestFinished(() => right.close())
  await expect.poll(() => right.readiness(), { timeout: 10_000 }).toEqual({ isReady: true, lacks: [] })
})

test('what needs an RPC that an older service lacks is answered 503, and a line a minute names it', async () => {
  const DATA_DIR = folder()
  const methods = TokenService.methods.filter(({ name }) => name !== 'GetAuthorizedUser')
  const dispatcher = new Dispatcher({ mayCall, onCall: () => undefined, onUnexpected: () => undefined })
  dispatcher.register({ ...TokenService, methods } as typeof TokenService, {} as Handlers<typeof TokenService>)
  const address = { kind: 'unix', path: `${DATA_DIR}/older.sock` } as const
  const common = { callers: parseCallers(''), maxConnections: 100 }
  const older = await startRpcServer({ dispatcher, address, tls: undefined, ...common })
  onTestFinished(() => older.drain(0))
  const { logStream, lines } = collectLog()
  const env = { DATA_DIR, ADMIN_PORT: '0', PORT: String(await freePort()), TOKEN_SERVICE_URL: older.address }
  const gateway = await start('gateway', readConfig(env), { logStream })
  onTestFinished(() => gateway.close())
  for (let count = 0; count < 3; count += 1) {
    const answer = await fetch(`${gateway.url}/api/oauth2/user?appid=a&access_token=t&openid=o`)
    const error = { type: 'remote_server_error', action: 'retry' }
    expect([answer.status, await answer.json()]).toMatchObject([503, { error }])
  }
  const told = lines.filter((line) => line.includes('surveyauth.v1.TokenService/GetAuthorizedUser'))
  expect(told).toEqual([expect.stringContaining('the token service lacks')])
  expect(lines.join('')).not.toContain('failed unexpectedly')
})
