import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { readConfig } from '../../bin/config.js'
import { readOidcProviders } from '../../bin/oidc-providers.js'

const LEAST = {
  id: 'corp',
  label: 'Corp',
  issuer: 'https://login.example',
  client_id: 'surveys',
  client_secret_file: 'secret',
}

/** Reads a file with this content, beside a file called `secret`. */
function read(content: unknown, secret = 'a-secret\n') {
  const folder = mkdtempSync(path.join(tmpdir(), 'survey-auth-'))
  onTestFinished(() => rmSync(folder, { recursive: true }))
  writeFileSync(path.join(folder, 'secret'), secret)
  const file = path.join(folder, 'providers.json')
  writeFileSync(file, typeof content === 'string' ? content : JSON.stringify(content))
  return readOidcProviders(file)
}

const faultsOf = (...providers: unknown[]) => {
  try {
    read({ providers })
    return ''
  } catch (error) {
    return (error as Error).message
  }
}

test('a provider needs five members; the rest is usual', () => {
  expect(read({ providers: [LEAST] })).toEqual([
    {
      id: 'corp',
      label: { en: 'Corp', zh: 'Corp' },
      issuer: 'https://login.example',
      clientId: 'surveys',
      clientSecret: 'a-secret',
      tokenAuth: 'client_secret_basic',
      scopes: ['openid', 'profile'],
      claims: { nickname: 'name', avatar: 'picture' },
      provision: 'create',
      require: {},
      switchAccountPrompt: 'select_account',
      timeoutMs: 4_000,
    },
  ])
})

test('the usual time for a provider is less than what a gateway waits for a token service', () => {
  expect(read({ providers: [LEAST] })[0]?.timeoutMs).toBeLessThan(readConfig({}).rpcTimeoutMs)
})

test('everything can be said', () => {
  const { client_secret_file: _, ...rest } = LEAST
  const all = {
    ...rest,
    label: { en: 'Corp account', zh: '企业账号' },
    token_auth: 'none',
    scopes: ['openid', 'groups'],
    claims: { nickname: 'nickname' },
    provision: 'existing_only',
    require: { groups: ['staff'] },
    switch_account_prompt: 'login',
    timeout_ms: 1_000,
  }
  expect(read({ providers: [all] })).toMatchObject([
    {
      tokenAuth: 'none',
      clientSecret: undefined,
      provision: 'existing_only',
      switchAccountPrompt: 'login',
      claims: { nickname: 'nickname', avatar: 'picture' },
    },
  ])
})

test('all faults are named at once', () => {
  const faults = faultsOf({ ...LEAST, id: 'Corp', issuer: 'http://login.example', secret: 'x' }, LEAST, LEAST)
  expect(faults).toContain('providers.0.id must be lower-case letters, digits and single hyphens')
  expect(faults).toContain('providers.0.issuer must be an https address')
  expect(faults).toContain('"secret"')
})

test.each([
  ['two providers of one id', [LEAST, { ...LEAST, issuer: 'https://other.example' }], 'providers.1.id is given twice'],
  [
    'an issuer of Entra for all tenants',
    [{ ...LEAST, issuer: 'https://login.microsoftonline.com/common/v2.0' }],
    'for many tenants',
  ],
  ['an issuer with a placeholder', [{ ...LEAST, issuer: 'https://login.example/{tenantid}/v2.0' }], 'for many tenants'],
  ['an issuer with a query', [{ ...LEAST, issuer: 'https://login.example/?a=1' }], 'without query and fragment'],
  ['a secret that nobody uses', [{ ...LEAST, token_auth: 'none' }], 'unless token_auth is none'],
  ['no secret', [{ ...LEAST, client_secret_file: undefined }], 'client_secret_file is needed'],
  ['a secret file that is not there', [{ ...LEAST, client_secret_file: 'nowhere' }], 'cannot be read: '],
  ['scopes without openid', [{ ...LEAST, scopes: ['profile'] }], 'must contain openid'],
  ['no provider', [], 'providers'],
])('%s is refused', (_, providers, fault) => {
  expect(faultsOf(...providers)).toContain(fault)
})

test('a provider of this machine may be without TLS', () => {
  expect(read({ providers: [{ ...LEAST, issuer: 'http://127.0.0.1:9' }] })).toHaveLength(1)
})

test.each(['', 'not JSON', '{"providers":[],"providers":[]}', '[]'])('a file that holds %o is refused', (content) => {
  expect(() => read(content)).toThrow()
})

test('no fault shows a secret', () => {
  expect(() => read({ providers: [LEAST] }, 'a-secret\u0007')).toThrow(/holds no secret: [^\u0007]*$/)
  expect(faultsOf({ ...LEAST, client_secret: 'canary' })).not.toContain('canary')
})
