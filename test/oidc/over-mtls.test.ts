// A sign-in at a provider where gateway and services are apart and joined by TLS: only the token service knows the provider.
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import type { Mode } from '../../bin/compose/addresses.js'
import type { Running } from '../../bin/compose/running.js'
import { start } from '../../bin/compose/start.js'
import { readConfig } from '../../bin/config.js'
import { AdminService } from '../../gen/surveyauth/v1/admin_service_pb.js'
import { collectLog } from '../harness/collect-log.js'
import { freePort } from '../harness/free-port.js'
import { authorizePath, CALLBACK } from '../harness/verbs.js'
import { Visitor } from '../harness/visitor.js'
import { createAuthority, materialOf, pemFiles } from '../rpc/certificates.js'
import { browserAt, providersFile, signInThere, startProvider } from './start-provider.js'

test('where gateway and services are joined by TLS, only the token service knows the provider and its secret', async () => {
  const provider = await startProvider()
  await provider.knows({ sub: 'li', name: 'Li Wei' })
  const authority = createAuthority()
  const { logStream, lines } = collectLog()
  const startPart = async (mode: Mode, env: Readonly<Record<string, string>>): Promise<Running> => {
    const dataDir = mkdtempSync(path.join(tmpdir(), 'survey-auth-mtls-'))
    onTestFinished(() => rmSync(dataDir, { recursive: true, force: true }))
    const files = pemFiles(dataDir, materialOf(authority, authority.issue(`IP:127.0.0.1,DNS:${mode}.test`)))
    const callers = { RPC_CALLERS: 'gateway=DNS:gateway.test;survey=DNS:survey.test' }
    const ports = { PORT: '0', ADMIN_PORT: '0', LOG_LEVEL: 'debug', RATE_LIMIT: 'off' }
    const running = await start(mode, readConfig({ DATA_DIR: dataDir, ...files, ...callers, ...ports, ...env }), {
      logStream,
    })
    onTestFinished(() => running.close())
    return running
  }
  const [token, survey] = [`https://127.0.0.1:${await freePort()}`, `https://127.0.0.1:${await freePort()}`]
  const services = await startPart('token', {
    RPC_LISTEN: token,
    OIDC_PROVIDERS_FILE: providersFile({ corp: provider }),
  })
  await startPart('survey', { RPC_LISTEN: survey, TOKEN_SERVICE_URL: token })
  const gateway = await startPart('gateway', { TOKEN_SERVICE_URL: token, SURVEY_SERVICE_URL: survey })
  await provider.register(gateway.url, 'corp')
  const admin = services.client(AdminService, 'operator')
  const { app } = await admin.createApp({ name: 'Chart Maker', redirectUris: [CALLBACK] })

  const visitor = new Visitor(gateway.url)
  const page = await visitor.open(authorizePath({ appid: app?.appid ?? '', redirectUri: CALLBACK }, 'st'))
  const button = page.html.forms.find(({ fields }) => fields.provider === 'corp')
  if (!button) throw new Error(`no button on: ${page.html.text}`)
  const address = (await visitor.submit(page, button)).headers.get('location') ?? ''
  const { pathname, search, searchParams } = await signInThere(browserAt(provider), address, 'li')
  const consent = await visitor.open(pathname + search)
  expect(consent.html.text).toContain('Li Wei')
  const callback = new URL((await visitor.decide(consent, 'confirm')).headers.get('location') ?? '')
  expect([callback.searchParams.get('state'), callback.searchParams.get('code')]).toEqual([
    'st',
    expect.stringMatching(/./),
  ])
  for (const secret of [provider.clientSecret, searchParams.get('code') ?? '', searchParams.get('state') ?? ''])
    expect(lines.join('').includes(secret)).toBe(false)
})
