// The RPC door of a process that is configured by its variables.
import * as grpc from '@grpc/grpc-js'
import { expect, onTestFinished, test } from 'vitest'
import { start } from '../../bin/compose/start.js'
import { type Environment, readConfig } from '../../bin/config.js'
import { collectLog } from '../harness/collect-log.js'
import { temporaryDirectory } from '../store/temporary-directory.js'

async function started(env: Environment) {
  const base = { PORT: '0', ADMIN_PORT: '0', RPC_LISTEN: 'http://127.0.0.1:0', LOG_LEVEL: 'silent' }
  const running = await start('all', readConfig({ DATA_DIR: temporaryDirectory(), ...base, ...env }), collectLog())
  onTestFinished(() => running.close())
  const client = new grpc.Client(new URL(running.rpcAddress ?? '').host, grpc.credentials.createInsecure())
  onTestFinished(() => client.close())
  return client
}

const bytes = (message: Buffer) => message

test.each([
  [{}, grpc.status.UNIMPLEMENTED],
  [{ RPC_REFLECTION: 'on' }, grpc.status.OK],
] as const)('with %j a reflection request ends with status %d', async (env, status) => {
  const client = await started(env)
  const path = '/grpc.reflection.v1.ServerReflection/ServerReflectionInfo'
  const stream = client.makeBidiStreamRequest(path, bytes, bytes)
  const end = new Promise((resolve) => stream.on('status', ({ code }) => resolve(code)))
  stream.on('error', () => undefined).resume()
  stream.end(Buffer.from([0x3a, 0])) // list_services
  expect(await end).toBe(status)
})
