// `grant revoke` of many grants at once.
import path from 'node:path'
import { expect, onTestFinished, test, vi } from 'vitest'
import { revokeUntilNone } from '../../bin/commands/grant.js'
import { AdminService } from '../../gen/surveyauth/v1/admin_service_pb.js'
import { mayCall } from '../../services/rpc/callers.js'
import { clientOf, createDirectDoor } from '../../services/rpc/client.js'
import { Dispatcher, type Handlers } from '../../services/rpc/dispatcher.js'
import { openSqliteTokenStore } from '../../services/token/store/sqlite/sqlite-token-store.js'
import type { TokenStore } from '../../services/token/store/token-store.js'
import { createProcess, type ServiceProcess } from '../harness/process.js'
import { auditTrail, grant, seed } from '../store/token-store-verbs.js'

vi.setConfig({ testTimeout: 60_000 })

/** More than are revoked at a time. */
const OF_BOB = 60

/** Ann has granted access to both apps, bob to one, many times. */
async function withGrants(): Promise<{ service: ServiceProcess; store: TokenStore }> {
  const service = await createProcess()
  const store = openSqliteTokenStore({ file: path.join(service.dataDir, 'token.db') })
  onTestFinished(() => store.close())
  await seed(store)
  await grant(store)
  await grant(store, { appid: 'app2' })
  for (let made = 0; made < OF_BOB; made += 1) await grant(store, { username: 'bob' })
  return { service, store }
}

/** Grants that are left, as `app user`. */
async function left(service: ServiceProcess): Promise<string[]> {
  const grants = await service.json<{ appid: string; username: string; revoked_at: string | null }[]>(['grant', 'list'])
  return grants
    .filter(({ revoked_at }) => revoked_at === null)
    .map(({ appid, username }) => `${appid} ${username}`)
    .sort()
}

const BOBS = Array.from({ length: OF_BOB }, () => 'app1 bob')
const ALL = ['app1 ann', ...BOBS, 'app2 ann']

test.each([
  ['of an app', ['--appid', 'app1'], OF_BOB + 1, ['app2 ann']],
  ['of a user', ['--username', 'ann'], 2, BOBS],
  ['of a user to an app', ['--username', 'ann', '--appid', 'app1'], 1, [...BOBS, 'app2 ann']],
  ['of which there are none', ['--username', 'bob', '--appid', 'app2'], 0, ALL],
])('all grants %s are counted with --dry-run, then revoked', async (_, filter, count, others) => {
  const { service, store } = await withGrants()
  const revoke = ['grant', 'revoke', ...filter]
  expect(await service.json([...revoke, '--dry-run'])).toEqual({ found: count, revoked: 0 })
  expect(await left(service)).toEqual(ALL)
  expect(await service.json(revoke)).toEqual({ found: count, revoked: count })
  expect(await left(service)).toEqual(others)
  expect(await service.json(revoke)).toEqual({ found: 0, revoked: 0 })
  const events = (await auditTrail(store)).filter(({ kind }) => kind === 'grant.revoked')
  expect(events.map(({ actor }) => actor)).toEqual(Array.from({ length: count }, () => 'operator'))
  expect(new Set(events.map(({ requestId }) => requestId)).size).toBe(Math.min(count, 1))
})

test('a dry run and a revocation say how many', async () => {
  const { service } = await withGrants()
  const ofAnn = ['grant', 'revoke', '--username', 'ann', '--appid', 'app1']
  const counted = (found: number, revoked: number) => ({
    ...{ exitCode: 0, stderr: '' },
    stdout: `found    ${found}\nrevoked  ${revoked}\n`,
  })
  expect(await service.run([...ofAnn, '--dry-run'])).toEqual(counted(1, 0))
  expect(await service.run(ofAnn)).toEqual(counted(1, 1))
  expect(await service.run(ofAnn)).toEqual(counted(0, 0))
})

test.each([
  [[], /give a grant_id, or --appid or --username or both/],
  [['grant_x', '--appid', 'app1'], /give a grant_id, or/],
  [['grant_x', '--dry-run'], /give a grant_id, or/],
  [['--appid', ''], /must not be empty/],
  [['--username='], /must not be empty/],
])('grant revoke %j is wrong usage, and revokes nothing', async (args, said) => {
  const service = await createProcess()
  const { exitCode, stderr } = await service.run(['grant', 'revoke', ...args])
  expect({ exitCode, stderr }).toEqual({ exitCode: 2, stderr: expect.stringMatching(said) })
})

test.each([
  ['app', '--appid', 'app_typo'],
  ['user', '--username', 'nobody'],
])('an %s that is not there is said to be missing', async (what, option, name) => {
  const { service } = await withGrants()
  const { exitCode, stderr } = await service.run(['grant', 'revoke', option, name])
  expect({ exitCode, stderr }).toEqual({ exitCode: 1, stderr: expect.stringContaining(`no such ${what}: ${name}`) })
})

/** A service whose app goes on: with each of the first revocations one more grant is made. */
function busyService(made: number) {
  const grants = new Map([['grant_0', false]])
  const handlers: Partial<Handlers<typeof AdminService>> = {
    async listGrants() {
      const rows = [...grants].map(([grantId, isRevoked]) => ({ grantId, ...(isRevoked && { revokeTime: {} }) }))
      return { grants: rows.reverse() }
    },
    async revokeGrant({ grantId }) {
      const alreadyRevoked = grants.get(grantId) === true
      grants.set(grantId, true)
      if (grants.size <= made) grants.set(`grant_${grants.size}`, false)
      return { alreadyRevoked }
    },
  }
  const dispatcher = new Dispatcher({ mayCall, onCall: () => {}, onUnexpected: () => {}, maxDeadlineMs: 1_000 })
  dispatcher.register(AdminService, handlers as Handlers<typeof AdminService>)
  return { grants, admin: clientOf(AdminService, createDirectDoor(dispatcher, 'operator')) }
}

test('grants that are made while others are revoked are revoked too', async () => {
  const { grants, admin } = busyService(3)
  const count = { found: 0, revoked: 0 }
  await revokeUntilNone(admin, { appid: 'app1' }, count)
  expect(count).toEqual({ found: 4, revoked: 4 })
  expect([...grants.values()]).toEqual([true, true, true, true])
})
