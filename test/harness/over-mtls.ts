// The service as three processes that find each other over mTLS, with the example platform as the fourth: it has a certificate, and
// nothing but its role lets it say who has signed in.
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import type { Client } from '@connectrpc/connect'
import { start } from '../../bin/compose/start.js'
import { readConfig } from '../../bin/config.js'
import { startPlatform } from '../../examples/platform/platform.js'
import { AdminService } from '../../gen/surveyauth/v1/admin_service_pb.js'
import { createAuthority, materialOf, pemFiles } from '../rpc/certificates.js'
import { freePort } from './free-port.js'

export interface OverMtls {
  readonly url: string
  readonly platformUrl: string
  readonly tokenServiceUrl: string
  readonly admin: Client<typeof AdminService>
  /** The PEM files of a certificate with this name, as RPC_TLS_CERT, RPC_TLS_KEY and RPC_TLS_CA. */
  filesOf(name: string): Readonly<Record<string, string>>
  close(): Promise<void>
}

const CALLERS = 'gateway=DNS:gateway.test;survey=DNS:survey.test;sign_in=DNS:platform.test;operator=DNS:admin.test'

export async function openOverMtls(): Promise<OverMtls> {
  const folder = mkdtempSync(path.join(tmpdir(), 'survey-auth-mtls-'))
  const authority = createAuthority()
  const filesOf = (name: string) => {
    const own = mkdtempSync(path.join(folder, 'pem-'))
    return pemFiles(own, materialOf(authority, authority.issue(`DNS:${name},IP:127.0.0.1`)))
  }
  const [tokenPort, surveyPort, platformPort] = [await freePort(), await freePort(), await freePort()]
  const tokenServiceUrl = `https://127.0.0.1:${tokenPort}`
  const surveyServiceUrl = `https://127.0.0.1:${surveyPort}`
  const startOne = (kind: 'token' | 'survey' | 'gateway', env: Readonly<Record<string, string>>) => {
    const DATA_DIR = path.join(folder, kind)
    mkdirSync(DATA_DIR)
    const common = { DATA_DIR, PORT: '0', ADMIN_PORT: '0', RATE_LIMIT: 'off', LOG_LEVEL: 'error', RPC_CALLERS: CALLERS }
    return start(kind, readConfig({ ...common, RPC_TIMEOUT_MS: '30000', ...filesOf(`${kind}.test`), ...env }))
  }
  const SIGN_IN_URL = `http://127.0.0.1:${platformPort}/sign-in`
  const token = await startOne('token', { RPC_LISTEN: tokenServiceUrl, SIGN_IN_URL })
  const survey = await startOne('survey', { RPC_LISTEN: surveyServiceUrl, TOKEN_SERVICE_URL: tokenServiceUrl })
  const services = { TOKEN_SERVICE_URL: tokenServiceUrl, SURVEY_SERVICE_URL: surveyServiceUrl }
  const gateway = await startOne('gateway', services)
  const { RPC_TLS_CA: ca, RPC_TLS_CERT: cert, RPC_TLS_KEY: key } = filesOf('platform.test')
  const platform = await startPlatform({ rpc: { url: tokenServiceUrl, ca, cert, key }, port: platformPort })
  return {
    url: gateway.url,
    platformUrl: platform.url,
    tokenServiceUrl,
    admin: token.client(AdminService, 'operator'),
    filesOf,
    async close() {
      await platform.close()
      for (const running of [gateway, survey, token]) await running.close()
      rmSync(folder, { recursive: true, force: true })
    },
  }
}
