// How large a request may be, as both ends are configured.
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { Code, ConnectError } from '@connectrpc/connect'
import { afterAll, expect, test } from 'vitest'
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

const configWith = (env: Record<string, string>) =>
  readConfig({
    DATA_DIR: dataDir,
    PORT: '0',
    ADMIN_PORT: '0',
    LOG_LEVEL: 'silent',
    RPC_LISTEN: 'http://127.0.0.1:0',
    ...env,
  })

/** The code of a request that no method accepts: refused for its size, or for its field. */
async function failureOf(
  address: string,
  service: 'token' | 'survey',
  ask: (invoke: Invoke) => Promise<unknown>,
  config: Config,
) {
  const remote = connectTo(service, parseAddress(address), config, 'gateway')
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
    variable: 'RPC_MAX_REQUEST_BYTES',
    bytes: 65_536,
    ask: (size: number) => (invoke: Invoke) =>
      clientOf(AccountService, invoke).getSession({ sessionToken: 'x'.repeat(size) }),
  },
  {
    service: 'survey' as const,
    variable: 'RPC_MAX_SURVEY_REQUEST_BYTES',
    bytes: 4_194_304,
    ask: (size: number) => (invoke: Invoke) =>
      clientOf(SurveyService, invoke).listSurveys({ appid: 'app_x', accessToken: 'x'.repeat(size) }),
  },
])('$variable limits requests to the $service service, on both sides', async ({ service, variable, bytes, ask }) => {
  const standard = configWith({})
  const larger = configWith({ [variable]: String(2 * bytes) })
  for (const [server, client, size, code] of [
    [larger, larger, bytes + 1000, Code.InvalidArgument],
    [larger, larger, 2 * bytes, Code.ResourceExhausted],
    [larger, standard, bytes, Code.ResourceExhausted],
    [standard, standard, bytes - 1000, Code.InvalidArgument],
  ] as const) {
    const running = await start('all', server, collectLog())
    try {
      expect(await failureOf(running.rpcAddress ?? '', service, ask(size), client)).toBe(code)
    } finally {
      await running.close()
    }
  }
})
