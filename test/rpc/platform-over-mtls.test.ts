// The two curl lines of docs/operators/users.md, as they stand there, against processes that find each other over mTLS.
import { execFile } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { promisify } from 'node:util'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type OverMtls, openOverMtls } from '../harness/over-mtls.js'
import { Visitor } from '../harness/visitor.js'

const run = promisify(execFile)
const page = readFileSync(new URL('../../docs/operators/users.md', import.meta.url), 'utf8')
const [get = '', accept = ''] = page.match(/(?<=^ {4})curl .*SignInService[^\n]*(?:\n {6,}.*)*/gm) ?? []

let place: OverMtls
beforeAll(async () => {
  place = await openOverMtls()
}, 60_000)
afterAll(() => place.close())

/** What the line prints when the caller has a certificate with this name. */
async function pasted(line: string, name: string, CHALLENGE: string) {
  const { tokenServiceUrl: RPC_URL } = place
  const env = { ...process.env, RPC_URL, CHALLENGE, ...place.filesOf(name) }
  return JSON.parse((await run('sh', ['-c', line], { env })).stdout)
}

async function begin(visitor: Visitor): Promise<string> {
  const { headers } = await visitor.request('/connect/apps')
  return new URL(headers.get('location') ?? '').searchParams.get('sign_in_challenge') ?? ''
}

test('the platform accepts a sign-in with the two printed lines, and its certificate', {
  timeout: 60_000,
}, async () => {
  const visitor = new Visitor(place.url)
  const challenge = await begin(visitor)
  const asked = await pasted(get, 'platform.test', challenge)
  expect(asked).toMatchObject({ state: 'SIGN_IN_STATE_PENDING', restartUri: `${place.url}/connect/apps` })
  const { redirectTo } = await pasted(accept, 'platform.test', challenge)
  const { pathname, search } = new URL(redirectTo)
  expect((await visitor.open(pathname + search)).html.text).toContain('Connected apps')
})

test('nobody else can: not the gateway, the survey service, an operator or a stranger', {
  timeout: 60_000,
}, async () => {
  const visitor = new Visitor(place.url)
  const challenge = await begin(visitor)
  for (const name of ['gateway.test', 'survey.test', 'admin.test', 'stranger.test'])
    expect([name, await pasted(accept, name, challenge)]).toMatchObject([name, { code: 'permission_denied' }])
  expect(await pasted(get, 'platform.test', challenge)).toMatchObject({ state: 'SIGN_IN_STATE_PENDING' })
})
