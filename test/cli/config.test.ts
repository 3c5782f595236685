// The configuration: one table of variables, and an error that names every wrong one at once.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import { ConfigError, describeConfig, type Environment, type RpcAddressSetting, readConfig } from '../../bin/config.js'
import { freePort } from '../harness/free-port.js'
import { createProcess } from '../harness/process.js'

vi.setConfig({ testTimeout: 120_000 }) // each test spawns several processes

function problemsOf(env: Environment, used: readonly RpcAddressSetting[] = []): string[] {
  try {
    readConfig(env, used)
  } catch (error) {
    if (error instanceof ConfigError) return error.problems.map(({ variable }) => variable)
    throw error
  }
  return []
}

function fileWith(text: string | Buffer): string {
  const folder = mkdtempSync(path.join(tmpdir(), 'survey-auth-config-'))
  onTestFinished(() => rmSync(folder, { recursive: true }))
  const file = path.join(folder, 'value')
  writeFileSync(file, text)
  return file
}

test('all that is wrong with BRAND_FILE is named at once, by a gateway that starts, config and doctor, and by nothing else', async () => {
  const faulty = fileWith(
    '{"name": "", "logo": "none.png", "accent": "#ffffff", "texts": {"en": {"signIn.titel": "x"}}}',
  )
  const service = await createProcess({ BRAND_FILE: faulty, PORT: String(await freePort()) })
  for (const words of ['serve', 'config']) {
    const { exitCode, stderr } = await service.cli(words.split(' '))
    expect(exitCode, stderr).toBe(78)
    for (const at of ['name', 'logo: cannot be read', 'accent', 'texts.en.signIn.titel'])
      expect(stderr).toContain(`BRAND_FILE names a file with a fault: ${at}`)
  }
  expect((await service.cli(['doctor'])).stdout).toMatch(/configuration +wrong +BRAND_FILE names a file with a fault/)
  expect((await service.cli(['migrate'])).exitCode).toBe(0)
})

test('all that is wrong with OIDC_PROVIDERS_FILE is named at once, with what is wrong with BRAND_FILE', async () => {
  const provider = { id: 'Corp', label: 'Corp', issuer: 'http://corp.example', client_id: 'x', client_secret: 'canary' }
  const faulty = fileWith(JSON.stringify({ providers: [provider] }))
  const brand = fileWith('{"accent": "#ffffff"}')
  const service = await createProcess({
    BRAND_FILE: brand,
    OIDC_PROVIDERS_FILE: faulty,
    PORT: String(await freePort()),
  })
  for (const words of ['serve', 'config']) {
    const { exitCode, stderr } = await service.cli(words.split(' '))
    expect(exitCode, stderr).toBe(78)
    for (const at of ['id must be lower-case', 'issuer must be an https address', 'client_secret'])
      expect(stderr).toMatch(new RegExp(`OIDC_PROVIDERS_FILE names a file with a fault: providers\\.0.*${at}`))
    expect(stderr).toContain('BRAND_FILE names a file with a fault: accent')
    expect(stderr).not.toContain('canary')
  }
  expect((await service.cli(['doctor'])).stdout).toMatch(/configuration +wrong +.*OIDC_PROVIDERS_FILE names a file/)
  expect((await service.cli(['migrate'])).exitCode).toBe(0)
  const asToken = await service.cli(['serve', 'token'], { env: { BRAND_FILE: 'none', ADMIN_PORT: '0' } })
  expect([asToken.exitCode, asToken.stderr]).toEqual([78, expect.not.stringContaining('BRAND')])
})

test.each([
  ['{', 'that is not JSON in UTF-8'],
  ['{"name": "a", "name": "b"}', 'in which "name" is given twice'],
  [Buffer.of(0x22, 0xff, 0x22), 'that is not JSON in UTF-8'],
])('BRAND_FILE with %s is refused', async (content, fault) => {
  const { exitCode, stderr } = await (await createProcess({ BRAND_FILE: fileWith(content) })).cli(['config'])
  expect({ exitCode, stderr }).toEqual({
    exitCode: 78,
    stderr: expect.stringContaining(`BRAND_FILE names a file ${fault}`),
  })
})

describe('defaults', () => {
  test('an empty environment yields the defaults of the operating contract', () => {
    const dataDir = path.resolve('data')
    expect(readConfig({})).toEqual({
      host: '127.0.0.1',
      port: 8080,
      publicUrl: new URL('http://127.0.0.1:8080'),
      trustedProxies: [],
      adminHost: '127.0.0.1',
      adminPort: 9100,
      dataDir,
      tokenDatabase: { kind: 'sqlite', file: path.join(dataDir, 'token.db') },
      surveyDatabase: { kind: 'sqlite', file: path.join(dataDir, 'survey.db') },
      rpcListen: 'socket',
      tokenServiceUrl: undefined,
      surveyServiceUrl: undefined,
      rpcTlsCert: '',
      rpcTlsKey: '',
      rpcTlsCa: '',
      rpcCallers: new Map(),
      codeTtlSeconds: 300,
      accessTokenTtlSeconds: 259_200,
      refreshTokenTtlSeconds: 2_592_000,
      accessTokenOverlapSeconds: 300,
      codeReplayGraceSeconds: 10,
      sessionIdleSeconds: 3600,
      sessionTtlSeconds: 43_200,
      maxLiveCodesPerUserAndApp: 1000,
      maxGrantsPerUserAndApp: 100,
      maxSessionsPerUser: 100,
      passwordSignIn: 'on',
      signInUrl: undefined,
      oidcProvidersFile: '',
      answers: 'on',
      brandFile: '',
      httpErrorStatus: 'semantic',
      rateLimit: 'on',
      httpHeadersTimeoutSeconds: 10,
      httpRequestTimeoutSeconds: 15,
      httpKeepAliveSeconds: 65,
      httpMaxConnections: 10_000,
      httpMaxInFlight: 1000,
      rateApiPerSource: 1200,
      rateApiPerApp: 6000,
      rateApiWindowSeconds: 10,
      ratePagesPerSource: 1200,
      ratePagesWindowSeconds: 60,
      rpcTimeoutMs: 4500,
      drainSeconds: 0,
      shutdownTimeoutSeconds: 25,
      signInFailuresPerAccountAndSource: 10,
      signInFailuresPerSource: 100,
      signInWindowSeconds: 900,
      passwordHashConcurrency: 2,
      passwordHashQueueLimit: 100,
      janitorIntervalSeconds: 60,
      keepEndedSeconds: 604_800,
      keepAuditDays: 400,
      logLevel: 'info',
      logFormat: 'auto',
    })
  })

  test('the public address and the databases follow from other variables', () => {
    const config = readConfig({ HOST: '::1', PORT: '9000', DATA_DIR: '/srv/auth' })
    expect(config.publicUrl.href).toBe('http://[::1]:9000/')
    expect(config.tokenDatabase).toEqual({ kind: 'sqlite', file: '/srv/auth/token.db' })
    expect(config.surveyDatabase).toEqual({ kind: 'sqlite', file: '/srv/auth/survey.db' })
  })

  test.each(['0.0.0.0', '::'])('with HOST %s the public address is that of this machine', (HOST) => {
    expect(readConfig({ HOST }).publicUrl.href).toBe('http://127.0.0.1:8080/')
  })

  test('a variable that is set to an empty string counts as unset', () => {
    expect(readConfig({ PORT: '', LOG_LEVEL: '' })).toMatchObject({ port: 8080, logLevel: 'info' })
  })

  test('an address of a proxy is normalised to how connections from there show it', () => {
    const TRUSTED_PROXIES = '10.0.0.1, ::ffff:10.0.0.2,2001:DB8::1,2001:0db8:0:0:0:0:0:2,FE80::1%eth0'
    const trustedProxies = ['10.0.0.1', '10.0.0.2', '2001:db8::1', '2001:db8::2', 'fe80::1%eth0']
    expect(readConfig({ TRUSTED_PROXIES })).toMatchObject({ trustedProxies })
  })

  test('proxies may be named by networks', () => {
    const trustedProxies = ['10.0.0.1', '10.1.0.0/16', '10.9.9.9/32', '2001:db8::/32', '2001:db8::1/128']
    expect(readConfig({ TRUSTED_PROXIES: trustedProxies.join() })).toMatchObject({ trustedProxies })
  })
})

describe('wrong values', () => {
  test.each([
    ['HOST', 'my host'],
    ['HOST', '256.1.1.1'],
    ['ADMIN_HOST', '127.0.0.1:9100'],
    ['PORT', 'http'],
    ['PORT', '65536'],
    ['PORT', '-1'],
    ['PORT', '80.5'],
    ['PUBLIC_URL', 'auth.example.com'],
    ['PUBLIC_URL', 'https://auth.example.com/path'],
    ['PUBLIC_URL', 'https://user@auth.example.com'],
    ['CODE_TTL_SECONDS', '601'],
    ['CODE_TTL_SECONDS', '0'],
    ['MAX_SESSIONS_PER_USER', '0'],
    ['MAX_GRANTS_PER_USER_AND_APP', '0'],
    ['KEEP_ENDED_SECONDS', '3599'],
    ['PUBLIC_URL', 'ftp://auth.example.com'],
    ['TOKEN_DATABASE_URL', 'sqlite:'],
    ['ACCESS_TOKEN_TTL_SECONDS', '3d'],
    ['RATE_LIMIT', 'yes'],
    ['HTTP_ERROR_STATUS', '201'],
    ['LOG_LEVEL', 'loud'],
    ['TOKEN_DATABASE_URL', 'mysql://db'],
    ['TRUSTED_PROXIES', 'proxy.local'],
    ['TRUSTED_PROXIES', '10.0.0.0/33'],
    ['TRUSTED_PROXIES', '2001:db8::/129'],
    ['TRUSTED_PROXIES', '0.0.0.0/0'],
    ['TRUSTED_PROXIES', '10.0.0.0/'],
    ['TRUSTED_PROXIES', '10.0.0.0/8/8'],
    ['TRUSTED_PROXIES', 'fe80::1%eth0/64'],
  ])('%s=%s is refused by name', (variable, value) => {
    expect(problemsOf({ [variable]: value })).toEqual([variable])
  })

  test.each(['tcp', 'socke'])('RPC_LISTEN=%s is refused with a list of all forms that are valid', (RPC_LISTEN) => {
    const forms = 'socket, off, unix:/path, https://host:port or http://127.0.0.1:port'
    expect(() => readConfig({ RPC_LISTEN })).toThrow(`RPC_LISTEN must be ${forms}`)
  })

  test('a service has one address, or several of any form, separated by commas', () => {
    const unix = (path: string) => ({ kind: 'unix', path })
    expect(readConfig({ TOKEN_SERVICE_URL: 'unix:/a' }).tokenServiceUrl).toEqual([unix('/a')])
    const several = 'unix:/a, unix:/b,https://token.example,http://127.0.0.1:81'
    expect(readConfig({ SURVEY_SERVICE_URL: several }).surveyServiceUrl).toEqual([
      unix('/a'),
      unix('/b'),
      { kind: 'tls', host: 'token.example', port: 443 },
      { kind: 'plaintext', host: '127.0.0.1', port: 81 },
    ])
    for (const variable of ['TOKEN_SERVICE_URL', 'SURVEY_SERVICE_URL'] as const) {
      const used = variable === 'TOKEN_SERVICE_URL' ? 'tokenServiceUrl' : 'surveyServiceUrl'
      expect(problemsOf({ [variable]: 'unix:/a,https://b' }, [used])).toEqual([
        'RPC_TLS_CERT',
        'RPC_TLS_KEY',
        'RPC_TLS_CA',
      ])
    }
  })

  test.each([
    ['unix:/a,', 'has a comma with no address before or after it'],
    [',', 'has a comma with no address before or after it'],
    ['unix:/a,,unix:/b', 'has a comma with no address before or after it'],
    [
      'unix:/a,b',
      'has b between commas, as an address: must be unix:/path, https://host:port or http://127.0.0.1:port',
    ],
    [
      'unix:/a,http://token.example',
      'has http://token.example between commas, as an address: plaintext is for loopback only',
    ],
    ['unix:/a,unix: /b', 'must not have a space after its first colon'],
    ['unix:/a,unix:///a', 'names unix:/a twice'],
    ['https://a,https://A:443', 'names https://a:443 twice'],
  ])('%s is refused as addresses of a service: %s', (text, message) => {
    expect(() => readConfig({ TOKEN_SERVICE_URL: text })).toThrow(`TOKEN_SERVICE_URL ${message}`)
  })

  test.each(['RPC_LISTEN', 'SURVEY_PROVIDER_URL'])('%s is one address, and its path has no comma', (variable) => {
    const fault = `${variable} must not have a comma in its path: commas separate addresses`
    expect(() => readConfig({ [variable]: 'unix:/a,unix:/b' })).toThrow(fault)
    expect(problemsOf({ [variable]: 'https://a,https://b' })).toEqual([variable])
  })

  test.each(['TOKEN_DATABASE_URL', 'DATA_DIR', 'RPC_LISTEN', 'RPC_TLS_CERT', 'PUBLIC_URL'])(
    '%s is refused if it begins or ends with a space',
    (variable) => {
      const value = { TOKEN_DATABASE_URL: 'sqlite:t.db', RPC_LISTEN: 'unix:a', PUBLIC_URL: 'http://a' }[variable] ?? 'a'
      expect(problemsOf({ [variable]: value })).toEqual([])
      for (const text of [`${value} `, ` ${value}`, `${value}\r`, `${value}\u{a0}`]) {
        expect(problemsOf({ [variable]: text })).toEqual([variable])
      }
    },
  )

  test('several wrong values are named at once', () => {
    const wrong = { PORT: 'x', CODE_TTL_SECONDS: '1e3', RATE_LIMIT: 'maybe', SESSION_TTL_SECONDS: '' }
    expect(problemsOf(wrong)).toEqual(['PORT', 'CODE_TTL_SECONDS', 'RATE_LIMIT'])
  })

  test('values that contradict each other are named', () => {
    expect(problemsOf({ SESSION_IDLE_SECONDS: '100', SESSION_TTL_SECONDS: '99' })).toEqual(['SESSION_IDLE_SECONDS'])
    expect(problemsOf({ PORT: '9100' })).toEqual(['ADMIN_PORT'])
    expect(problemsOf({ PORT: '0', ADMIN_PORT: '0' })).toEqual([])
    expect(problemsOf({ HOST: '127.0.0.2', PORT: '9100' })).toEqual([])
    const timeouts = { HTTP_HEADERS_TIMEOUT_SECONDS: '16', HTTP_REQUEST_TIMEOUT_SECONDS: '15' }
    expect(problemsOf(timeouts)).toEqual(['HTTP_HEADERS_TIMEOUT_SECONDS'])
    expect(problemsOf({ PASSWORD_SIGN_IN: 'off' })).toEqual(['PASSWORD_SIGN_IN'])
    const oneFile = { TOKEN_DATABASE_URL: 'sqlite:data/one.db', SURVEY_DATABASE_URL: 'sqlite:./data/../data/one.db' }
    expect(problemsOf(oneFile)).toEqual(['SURVEY_DATABASE_URL'])
    for (const suffix of ['-wal', '-shm', '-journal']) {
      expect(problemsOf({ TOKEN_DATABASE_URL: `sqlite:s.db${suffix}`, SURVEY_DATABASE_URL: 'sqlite:s.db' })).toEqual([
        'SURVEY_DATABASE_URL',
      ])
    }
    expect(problemsOf({ RPC_LISTEN: 'unix:data/../data/survey.db-shm' })).toEqual(['RPC_LISTEN'])
    const oneServer = { TOKEN_DATABASE_URL: 'postgres://db/sa', SURVEY_DATABASE_URL: 'postgres://db/sa' }
    expect(problemsOf(oneServer)).toEqual([])
  })

  test('certificate files that cannot be read and those that are none are named together', () => {
    const [RPC_TLS_CERT, RPC_TLS_KEY] = [fileWith('junk'), fileWith('')]
    const env = { RPC_LISTEN: 'https://127.0.0.1:0', RPC_TLS_CERT, RPC_TLS_KEY, RPC_TLS_CA: '/none' }
    expect(problemsOf(env, ['rpcListen']).sort()).toEqual(['RPC_TLS_CA', 'RPC_TLS_CERT', 'RPC_TLS_KEY'])
  })

  test('values that contradict each other are named beside others that are wrong', () => {
    const timeouts = { HTTP_HEADERS_TIMEOUT_SECONDS: '16', HTTP_REQUEST_TIMEOUT_SECONDS: '15' }
    const env = { ...timeouts, SESSION_IDLE_SECONDS: '50000', PORT: '9100', CODE_TTL_SECONDS: '999' }
    const wrong = ['ADMIN_PORT', 'CODE_TTL_SECONDS', 'HTTP_HEADERS_TIMEOUT_SECONDS', 'SESSION_IDLE_SECONDS']
    expect(problemsOf(env).sort()).toEqual(wrong)
    expect(problemsOf({ SIGN_IN_URL: 'http://www.example.com/login' })).toEqual(['SIGN_IN_URL'])
    expect(problemsOf({ PORT: 'x', ADMIN_PORT: 'x' }).sort()).toEqual(['ADMIN_PORT', 'PORT'])
    expect(problemsOf({ SESSION_IDLE_SECONDS: 'x', TOKEN_DATABASE_URL: 'x' }).sort()).toEqual([
      'SESSION_IDLE_SECONDS',
      'TOKEN_DATABASE_URL',
    ])
  })
})

describe('values from files', () => {
  test.each(['\n', '\r\n'])(
    'a database address is read from the file that VARIABLE_FILE names, without the last %j',
    (end) => {
      const file = fileWith(`sqlite:/srv/token.db${end}`)
      expect(readConfig({ TOKEN_DATABASE_URL_FILE: file }).tokenDatabase).toEqual({
        kind: 'sqlite',
        file: '/srv/token.db',
      })
    },
  )

  test('a file that cannot be read is refused by name', () => {
    expect(problemsOf({ TOKEN_DATABASE_URL_FILE: '/nowhere' })).toEqual(['TOKEN_DATABASE_URL_FILE'])
  })

  test.each(['postgres://u:canary@h/db\nx\n', 'postgres://u:canary@h/db\n\n', 'postgres://u:can\x07ary@h/db'])(
    'a file that holds %j is refused by name, and its value is not shown',
    (text) => {
      const env = { TOKEN_DATABASE_URL_FILE: fileWith(text) }
      expect(problemsOf(env)).toEqual(['TOKEN_DATABASE_URL_FILE'])
      expect(() => readConfig(env)).toThrow(/^TOKEN_DATABASE_URL_FILE (?!.*ary)/s)
    },
  )

  test.each([
    ['is empty', ''],
    ['is empty', '\n'],
    ['begins with a byte order mark: save it as UTF-8 without one', '\u{feff}sqlite:/srv/token.db\n'],
    ['holds more than one line, or control characters', Buffer.from('sqlite:/a', 'utf16le').toString('latin1')],
    ['is not UTF-8', Buffer.from('sqlite:/srv/caf\xe9.db\n', 'latin1')],
    ['whose content must not begin or end with a space', 'sqlite:/srv/token.db \n'],
    ['whose content must not have a space after its first colon', 'sqlite: /srv/token.db\n'],
    ['whose content must be sqlite:FILE or postgres://user:password@host:5432/database', 'token.db'],
  ])('a file that %s is named so', (flaw, text) => {
    for (const variable of ['TOKEN_DATABASE_URL_FILE', 'SURVEY_DATABASE_URL_FILE']) {
      const told = `${variable} names a file ${/^whose/.test(flaw) ? '' : 'that '}${flaw}`
      expect(() => readConfig({ [variable]: fileWith(text) })).toThrow(told)
    }
  })

  test('a value and its file at once are refused', () => {
    const env = { TOKEN_DATABASE_URL: 'sqlite:/a', TOKEN_DATABASE_URL_FILE: fileWith('sqlite:/b') }
    expect(problemsOf(env)).toEqual(['TOKEN_DATABASE_URL'])
  })

  test('the source of each value is shown', () => {
    const rows = describeConfig({ PORT: '9000', TOKEN_DATABASE_URL_FILE: fileWith('sqlite:/srv/token.db') })
    const sources = Object.fromEntries(rows.map(({ variable, source }) => [variable, source]))
    expect(sources).toMatchObject({ PORT: 'environment', TOKEN_DATABASE_URL: 'file', HOST: 'default' })
  })
})

describe('survey-auth config', () => {
  test.each([
    ['postgres://sa:hunter2@db/sa', 'postgres://sa:***@db/sa'],
    ['postgres://db/sa?user=sa&password=hunter2', 'postgres://db/sa?user=sa&password=***'],
    [
      'postgres://db:5432/sa?sslpassword=hunter2@2&sslmode=require',
      'postgres://db:5432/sa?sslpassword=***&sslmode=require',
    ],
    ['postgres://db/sa?%70assword=hunter2&sslmode=require', 'postgres://db/sa?%70assword=***&sslmode=require'],
    ['postgres://db/sa?ssl%70assw%6Frd=hunter2', 'postgres://db/sa?ssl%70assw%6Frd=***'],
    ['postgres://db/sa?a=b?password=hunter2', 'postgres://db/sa?a=b?password=***'],
    ['postgres://sa@db/sa?sslmode=require', 'postgres://sa@db/sa?sslmode=require'],
  ])('shows %s as %s', (url, shown) => {
    const rows = describeConfig({ TOKEN_DATABASE_URL: url })
    expect(rows.find(({ variable }) => variable === 'TOKEN_DATABASE_URL')?.value).toBe(shown)
  })

  test('shows every variable with its value', async () => {
    const service = await createProcess()
    const rows = await service.json<{ variable: string; value: string; source: string }[]>(['config'])
    expect(rows).toContainEqual(
      expect.objectContaining({ variable: 'CODE_TTL_SECONDS', value: '300', source: 'default' }),
    )
    expect(rows).toContainEqual(expect.objectContaining({ variable: 'DATA_DIR', value: service.dataDir }))
  })

  test('exits 78 and names HOST when it is nearly an IP address', async () => {
    const { exitCode, stdout, stderr } = await (await createProcess({ HOST: '256.1.1.1' })).run(['config'])
    expect({ exitCode, stdout }).toEqual({ exitCode: 78, stdout: '' })
    expect(stderr).toMatch(/^survey-auth: HOST must be a host name or an IP address\n/)
  })

  test.each(['config', 'serve', 'user list'])(
    'survey-auth %s exits 78 and names every wrong variable',
    async (words) => {
      const service = await createProcess({ PORT: 'x', LOG_LEVEL: 'loud' })
      const { exitCode, stdout, stderr } = await service.run(words.split(' '), { startsNothing: true })
      expect(exitCode).toBe(78)
      expect(stdout).toBe('')
      expect(stderr).toMatch(/PORT must be .*\n.*LOG_LEVEL must be /)
    },
  )
})
