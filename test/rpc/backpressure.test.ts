// A caller that asks over its stream and does not read what is answered.
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { create, fromBinary, toBinary } from '@bufbuild/protobuf'
import * as grpc from '@grpc/grpc-js'
import { expect, onTestFinished, test } from 'vitest'
import {
  MultiplexRequestSchema,
  MultiplexResponseSchema,
} from '../../gen/surveyauth/internal/v1/multiplex_service_pb.js'
import { GetAuthorizedUserRequestSchema, TokenService } from '../../gen/surveyauth/v1/token_service_pb.js'
import { mayCall } from '../../services/rpc/callers.js'
import { Dispatcher } from '../../services/rpc/dispatcher.js'
import { startRpcServer } from '../../services/rpc/rpc-server.js'
import { temporaryDirectory } from '../store/temporary-directory.js'

const CALLS = 1_000

test('a caller that does not read its answers has its further calls held back, and none is lost', async () => {
  let handled = 0
  const notNeeded = () => Promise.reject(new Error('not needed'))
  const dispatcher = new Dispatcher({ mayCall, onCall() {}, onUnexpected() {}, maxDeadlineMs: 60_000 }).register(
    TokenService,
    {
      checkAuthorizationRequest: notNeeded,
      issueCode: notNeeded,
      exchangeCode: notNeeded,
      refreshAccessToken: notNeeded,
      verifyAccessToken: notNeeded,
      async getAuthorizedUser({ openid }) {
        handled += 1
        return { openid, nickname: 'x'.repeat(50_000) }
      },
    },
  )
  const socket = path.join(temporaryDirectory(), 's')
  const server = await startRpcServer({
    dispatcher,
    address: { kind: 'unix', path: socket },
    tls: undefined,
    callers: new Map(),
    maxConnections: 10,
  })
  const client = new grpc.Client(`unix:${socket}`, grpc.credentials.createInsecure())
  onTestFinished(async () => {
    client.close()
    await server.drain(100)
  })
  const asIs = (bytes: Buffer) => bytes
  const stream = client.makeBidiStreamRequest('/surveyauth.internal.v1.MultiplexService/Multiplex', asIs, asIs)
  const answers: AsyncIterator<Buffer> = stream[Symbol.asyncIterator]()
  const answered = new Set<number>()
  const keep = ({ value }: IteratorResult<Buffer>) => {
    for (const { id } of fromBinary(MultiplexResponseSchema, value).results) answered.add(id)
  }
  const method = '/surveyauth.v1.TokenService/GetAuthorizedUser'
  for (let id = 1; id <= CALLS; id++) {
    const asked = create(GetAuthorizedUserRequestSchema, { appid: 'app_x', accessToken: 'sat_x', openid: `${id}` })
    const calls = [{ id, method, request: toBinary(GetAuthorizedUserRequestSchema, asked) }]
    stream.write(Buffer.from(toBinary(MultiplexRequestSchema, create(MultiplexRequestSchema, { calls }))))
    if (id === 1) keep(await answers.next()) // grpc-js reads without bound until its caller has begun to
    if (id % 20 === 0) await sleep(1)
  }
  for (let before = -1; before < handled; await sleep(500)) before = handled
  expect(handled).toBeGreaterThan(0)
  expect(handled).toBeLessThan(CALLS / 2)

  stream.end()
  for (let next = await answers.next(); !next.done; next = await answers.next()) keep(next)
  expect(answered.size).toBe(CALLS)
}, 30_000)
