// What commands ask a person at a terminal, and that they ask a script nothing. Skipped where there is no `script`, of util-linux.
import { spawnSync } from 'node:child_process'
import path from 'node:path'
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import { openSqliteTokenStore } from '../../services/token/store/sqlite/sqlite-token-store.js'
import { createProcess, type ServiceProcess } from '../harness/process.js'
import { seed } from '../store/token-store-verbs.js'

vi.setConfig({ testTimeout: 60_000 }) // each test spawns processes

const hasTerminals = spawnSync('script', ['--version']).status === 0
const FIRST = 'Password, 8 characters or more: '
const AGAIN = 'The same again: '
const SURE = 'Type yes to go on: '
const PASSWORD = 'correct horse Ä'

async function withUser(): Promise<ServiceProcess> {
  const service = await createProcess()
  await service.json(['user', 'create', '--username', 'ana', '--password-stdin'], { input: PASSWORD })
  return service
}

/** Apps `app1` and `app2` with a secret each, users `ann` and `bob`. */
async function withApps(): Promise<ServiceProcess> {
  const service = await createProcess()
  const store = openSqliteTokenStore({ file: path.join(service.dataDir, 'token.db') })
  onTestFinished(() => store.close())
  await seed(store)
  return service
}

const kindsOf = async (service: ServiceProcess) =>
  (await service.json<{ kind: string }[]>(['audit', 'list'])).map(({ kind }) => kind)

describe.skipIf(!hasTerminals)('a new password on a terminal', () => {
  test.each([[[]], [['--password-stdin']]])('is typed twice, and not shown: user create %j', async (options) => {
    const service = await createProcess()
    const create = ['user', 'create', '--username', 'ana', ...options]
    const { exitCode, screen } = await service.onTerminal(create, [
      [FIRST, `${PASSWORD}\r`],
      [AGAIN, `${PASSWORD}\r`],
    ])
    expect(screen).not.toContain(PASSWORD)
    expect({ exitCode, screen }).toMatchObject({ exitCode: 0, screen: expect.stringMatching(/has_password +yes/) })
  })

  test('a slip can be erased', async () => {
    const service = await withUser()
    const set = await service.onTerminal(
      ['user', 'set-password', 'ana'],
      [
        [FIRST, `${PASSWORD}x\u007f\r`],
        [AGAIN, `${PASSWORD}\r`],
      ],
    )
    expect(set).toMatchObject({ exitCode: 0, screen: expect.stringContaining('password set') })
  })

  test.each([
    ['is typed differently', `${PASSWORD}x\r`, 'the two passwords differ; nothing was done', 1],
    ['is recalled by the arrow key', '\u001b[A\r', 'the two passwords differ; nothing was done', 1],
    ['ends with the input', '\u0004', 'the two passwords differ; nothing was done', 1],
  ])('that %s the second time is not stored', async (_, typed, said, code) => {
    const service = await createProcess()
    const create = ['user', 'create', '--username', 'ana']
    const { exitCode, screen } = await service.onTerminal(create, [
      [FIRST, `${PASSWORD}\r`],
      [AGAIN, typed],
    ])
    expect({ exitCode, screen }).toEqual({ exitCode: code, screen: expect.stringContaining(said) })
    expect(screen).not.toContain(PASSWORD)
    expect((await service.run(['user', 'list'])).stderr).toContain('there is no database')
  })

  test('none at all is wrong usage', async () => {
    const service = await createProcess()
    const set = await service.onTerminal(['user', 'create', '--username', 'ana'], [[FIRST, '\u0004']])
    expect(set).toMatchObject({ exitCode: 2, screen: expect.stringContaining('no password was typed') })
  })

  test('Ctrl-C ends the command as a signal does', async () => {
    const service = await createProcess()
    const { exitCode } = await service.onTerminal(['user', 'create', '--username', 'ana'], [[FIRST, 'abc\u0003']])
    expect(exitCode).toBe(130)
  })

  test('of a user who signs in elsewhere none is asked for', async () => {
    const service = await createProcess()
    const { exitCode } = await service.onTerminal(['user', 'create', '--username', 'ana', '--external-id', '4711'])
    expect(exitCode).toBe(0)
  })
})

describe.skipIf(!hasTerminals)('what cannot be undone', () => {
  test.each([
    ['app delete app1', 'Delete app1 for good?'],
    ['user delete ana', 'Delete ana for good, with their surveys?'],
    ['survey delete 7 8 8', 'Delete 2 surveys for good?'],
    ['grant revoke --username ana', 'Revoke all grants of ana?'],
    ['grant revoke --username ana --appid app1', 'Revoke all grants of ana to app1?'],
    ['app secret revoke app1 secret_app1_default', 'Revoke the secret?'],
  ])('is asked about on a terminal, and not done unless the answer is yes: %s', async (words, question) => {
    const service = await withApps()
    const before = await kindsOf(service)
    const { exitCode, screen } = await service.onTerminal(words.split(' '), [[SURE, 'y\r']])
    expect({ exitCode, screen }).toEqual({ exitCode: 1, screen: expect.stringContaining(question) })
    expect(screen).toContain('survey-auth: nothing was done')
    expect(await kindsOf(service)).toEqual(before)
  })

  test('is done when the answer is yes', async () => {
    const service = await withApps()
    const revoke = ['app', 'secret', 'revoke', 'app1', 'secret_app1_default']
    expect(await service.onTerminal(revoke, [[SURE, '\u0004']])).toMatchObject({ exitCode: 1 })
    expect(await service.onTerminal(revoke, [[SURE, 'yes\r']])).toMatchObject({
      exitCode: 0,
      screen: expect.stringContaining('revoked\r\n'),
    })
    expect((await kindsOf(service))[0]).toBe('secret.revoked')
  })

  test('is not asked about with --yes, or without a terminal', async () => {
    const service = await withApps()
    const [one, other] = ['app1', 'app2'].map((appid) => ['app', 'secret', 'revoke', appid, `secret_${appid}_default`])
    const { exitCode, screen } = await service.onTerminal([...(one ?? []), '--yes'])
    expect({ exitCode, isAsked: screen.includes(SURE) }).toEqual({ exitCode: 0, isAsked: false })
    const { exitCode: code, stdout } = await service.cli(other ?? [], { input: 'no\n' })
    expect({ code, stdout }).toEqual({ code: 0, stdout: 'appid      app2\nsecret_id  secret_app2_default\n' })
  })
})
