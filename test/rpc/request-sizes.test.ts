// How large a request may be.
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { Code, ConnectError } from '@connectrpc/connect'
import { afterAll, expect, onTestFinished, test } from 'vitest'
import { connectTo } from '../../bin/compose/remote.js'
import { start } from '../../bin/compose/start.js'
import { type Config, readConfig } from '../../bin/config.js'
import { AccountService } from '../../gen/surveyauth/v1/account_service_pb.js'
import { SurveyService } from '../../gen/surveyauth/v1/survey_service_pb.js'
import { parseAddress } from '../../services/rpc/address.js'
import { clientOf, type Invoke } from '../../services/rpc/client.js'
import { collectLog } from '../harness/collect-log.js'

const dataDir = mkdtempSync(path.join(tmpdir(), 'survey-auth-sizes-'))
afterAll(() => rmSync(dataDir, { recursive: true }))

const config = readConfig({
  DATA_DIR: dataDir,
  PORT: '0',
  ADMIN_PORT: '0',
  LOG_LEVEL: 'silent',
  RPC_LISTEN: 'http://127.0.0.1:0',
})

/** The code of a request that no method accepts: refused for its size, or for its field. */
async function failureOf(
  address: string,
  service: 'token' | 'survey',
  ask: (invoke: Invoke) => Promise<unknown>,
  config: Config,
) {
  const remote = connectTo(service, [parseAddress(address)], config, 'gateway')
  try {
    return await ask(remote.invoke).then(
      () => undefined,
      (error: unknown) => ConnectError.from(error).code,
    )
  } finally {
    await remote.close()
  }
}

test.each([
  {
    service: 'token' as const,
    bytes: 65_536,
    ask: (size: number) => (invoke: Invoke) =>
      clientOf(AccountService, invoke).getSession({ sessionToken: 'x'.repeat(size) }),
  },
  {
    service: 'survey' as const,
    bytes: 4_194_304,
    ask: (size: number) => (invoke: Invoke) =>
      clientOf(SurveyService, invoke).listSurveys({ appid: 'app_x', accessToken: 'x'.repeat(size) }),
  },
])('a request to the $service service of $bytes bytes is refused for its size, a little less is read', async (row) => {
  const { service, bytes, ask } = row
  const running = await start('all', config, collectLog())
  onTestFinished(() => running.close())
  const failureAt = (size: number) => failureOf(running.rpcAddress ?? '', service, ask(size), config)
  expect(await failureAt(bytes - 1000)).toBe(Code.InvalidArgument)
  expect(await failureAt(bytes)).toBe(Code.ResourceExhausted)
})
