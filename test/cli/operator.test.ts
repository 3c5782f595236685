// Apps, secrets, users, surveys, grants and audit by command line.
import { execFileSync, spawnSync } from 'node:child_process'
import {
  closeSync,
  existsSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  statSync,
  truncateSync,
  writeFileSync,
  writeSync,
} from 'node:fs'
import path from 'node:path'
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import { Database } from '../../services/storage/sqlite/driver.js'
import { openSqliteTokenStore } from '../../services/token/store/sqlite/sqlite-token-store.js'
import { freePort } from '../harness/free-port.js'
import { createProcess, ServiceProcess, startProcess } from '../harness/process.js'
import { PROGRAM, spawnServe } from '../harness/spawn.js'
import { query } from '../postgres/cluster.js'
import { createDatabase } from '../postgres/shared-cluster.js'
import { createAuthority, materialOf, pemFiles } from '../rpc/certificates.js'
import { byOperator, grant, seed, userRow } from '../store/token-store-verbs.js'

vi.setConfig({ testTimeout: 120_000 }) // each test spawns several processes

const CALLBACK = 'https://app.example.com/callback'
const ISO = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}Z$/

interface CreatedApp {
  readonly appid: string
  readonly secret: string
  readonly secret_id: string
}

function createApp(service: ServiceProcess): Promise<CreatedApp> {
  return service.json(['app', 'create', '--name', 'Field Notes', '--redirect-uri', CALLBACK])
}

function createUser(service: ServiceProcess, username: string): Promise<{ user_id: string }> {
  return service.json(['user', 'create', '--username', username, '--password-stdin'], { input: 'correct horse\n' })
}

/** For a second service on one DATA_DIR and for its commands, which would otherwise ask the first. */
function socketOf(dataDir: string): Record<string, string> {
  const address = `unix:${path.join(dataDir, 'next.sock')}`
  return { RPC_LISTEN: address, TOKEN_SERVICE_URL: address, SURVEY_SERVICE_URL: address }
}

describe('apps', () => {
  test('creating the first app creates the database, and says so', async () => {
    const service = await createProcess()
    const { stderr } = await service.run(['app', 'create', '--name', 'N', '--redirect-uri', CALLBACK])
    expect(stderr).toContain(`creating a new database: ${path.join(service.dataDir, 'token.db')}\n`)
  })

  test('a command that cannot write, because another process does for too long, says so in one line', async () => {
    const service = await createProcess()
    await createApp(service)
    const db = new Database(path.join(service.dataDir, 'token.db'))
    onTestFinished(() => void db.close())
    db.exec('BEGIN IMMEDIATE')
    const { exitCode, stdout, stderr } = await service.run(['app', 'create', '--name', 'N', '--redirect-uri', CALLBACK])
    expect({ exitCode, stdout }).toEqual({ exitCode: 69, stdout: '' })
    expect(stderr).toMatch(/^survey-auth: the database is unavailable: .*\n$/)
  })

  test('app create --json prints appid, secret, secret_id, name and redirect_uris', async () => {
    const service = await createProcess()
    expect(await createApp(service)).toEqual({
      appid: expect.stringMatching(/^app_[\w-]{22}$/),
      secret: expect.stringMatching(/^sas_[\w-]{49}$/),
      secret_id: expect.stringMatching(/^secret_[\w-]{22}$/),
      name: 'Field Notes',
      redirect_uris: [CALLBACK],
    })
  })

  test('a secret is on stdout when it is made, and nowhere afterwards', async () => {
    const service = await createProcess()
    const { appid, secret } = await createApp(service)
    for (const args of [
      ['app', 'list'],
      ['app', 'show', appid],
      ['audit', 'list'],
      ['app', 'secret', 'list', appid],
    ]) {
      const { stdout, stderr } = await service.run([...args, '--json'])
      expect(stdout + stderr).not.toContain(secret)
    }
  })

  test('secrets are added, listed and revoked', async () => {
    const service = await createProcess()
    const { appid, secret_id: first } = await createApp(service)
    const added = await service.json<{ secret_id: string; secret: string }>([
      ...['app', 'secret', 'add', appid, '--name', '2027', '--expires-in-days', '365'],
    ])
    expect(Object.keys(added)).toEqual(['secret_id', 'secret'])
    for (const time of ['the first time', 'and again']) {
      const revoked = await service.json(['app', 'secret', 'revoke', appid, first])
      expect(revoked, time).toEqual({ appid, secret_id: first })
    }
    expect(await service.json(['app', 'secret', 'list', appid])).toEqual([
      expect.objectContaining({ secret_id: first, name: 'default', revoked_at: expect.stringMatching(ISO) }),
      expect.objectContaining({ name: '2027', expires_at: expect.stringMatching(ISO), revoked_at: null }),
    ])
  })

  test('an app is deleted once nothing refers to it; until then it is said what to do instead', async () => {
    const service = await createProcess()
    const store = openSqliteTokenStore({ file: path.join(service.dataDir, 'token.db') })
    onTestFinished(() => store.close())
    await seed(store)
    const { grantId } = await grant(store, {}, {}, Date.now())
    expect(await service.run(['app', 'delete', 'app1'])).toEqual({
      exitCode: 1,
      stdout: '',
      stderr:
        'survey-auth: the app has live grants\nrefuse it everywhere: survey-auth app disable app1\n' +
        'end its grants: survey-auth grant revoke --appid app1\n',
    })
    await service.json(['grant', 'revoke', grantId])
    expect(await service.json(['app', 'delete', 'app1'])).toEqual({ appid: 'app1', name: 'App app1' })
    expect(await service.json(['app', 'list'])).toMatchObject([{ appid: 'app2' }])
    expect(await service.run(['app', 'delete', 'app1'])).toMatchObject({
      exitCode: 1,
      stderr: expect.stringContaining('there is no such app: app1\n'),
    })
    const [deleted] = await service.json<object[]>(['audit', 'list', '--appid', 'app1'])
    expect(deleted).toMatchObject({ kind: 'app.deleted', note: 'App app1' })
    expect(await service.json(['grant', 'list', '--appid', 'app1'])).toMatchObject([{ app_name: 'App app1' }])
  })

  test('a secret expires after the given days', async () => {
    const service = await createProcess()
    const { appid } = await createApp(service)
    const startedAt = Math.floor(Date.now() / 1000) * 1000
    await service.json(['app', 'secret', 'add', appid, '--name', 'days', '--expires-in-days', '2'])
    const addedAt = Date.now()
    const secrets = await service.json<{ expires_at: string }[]>(['app', 'secret', 'list', appid])
    const days = Date.parse(secrets[1]?.expires_at ?? '') - 2 * 86_400_000
    expect(days).toBeGreaterThanOrEqual(startedAt)
    expect(days).toBeLessThanOrEqual(addedAt)
  })

  test('whether an app must send its secret to refresh is shown, and can be changed alone', async () => {
    const service = await createProcess()
    const created = ['app', 'create', '--name', 'N', '--redirect-uri', CALLBACK, '--require-secret-on-refresh']
    const { appid } = await service.json<{ appid: string }>(created)
    const shown = { name: 'N', redirect_uris: [CALLBACK] }
    expect(await service.json(['app', 'show', appid])).toMatchObject({ ...shown, requires_secret_on_refresh: true })
    for (const [option, requires_secret_on_refresh] of [
      ['--no-require-secret-on-refresh', false],
      ['--require-secret-on-refresh', true],
    ] as const) {
      const updated = await service.json(['app', 'update', appid, option])
      expect(updated).toMatchObject({ ...shown, requires_secret_on_refresh })
    }
  })

  test('how an app presents itself is shown and listed, set by one option each, and removed by another', async () => {
    const service = await createProcess()
    const face = {
      home_page: 'https://a.example/',
      description: 'Draws.',
      contact: 'a@b',
      privacy_link: 'https://c.example/',
    }
    const options = Object.entries(face).flatMap(([name, value]) => [`--${name.replace('_', '-')}`, value])
    const logo = ['--logo', path.resolve('gateway/pages/icon.svg'), '--require-pkce', '--reads-answers']
    const created = ['app', 'create', '--name', 'N', '--redirect-uri', CALLBACK, ...options, ...logo]
    const { appid } = await service.json<{ appid: string }>(created)
    const shown = { ...face, logo_hash: expect.stringMatching(/^[\w-]{43}$/), requires_pkce: true, reads_answers: true }
    expect(await service.json(['app', 'show', appid])).toMatchObject(shown)
    expect(await service.json(['app', 'list'])).toMatchObject([shown])
    const removed = await service.json([
      'app',
      'update',
      appid,
      ...['logo', 'contact', 'require-pkce', 'reads-answers'].map((name) => `--no-${name}`),
    ])
    expect(removed).toMatchObject({ ...face, contact: '', logo_hash: '', requires_pkce: false, reads_answers: false })
    const [event] = await service.json<{ note: string }[]>(['audit', 'list', '--limit', '1'])
    expect(event?.note).toBe('requires_pkce, reads_answers, contact, logo')
    for (const [file, said] of [
      [path.resolve('package.json'), 'package.json is not a PNG, WebP or SVG image'],
      ['nothing.png', 'cannot read nothing.png: there is no such file'],
    ] as const) {
      const refused = await service.run(['app', 'update', appid, '--logo', file])
      expect(refused).toMatchObject({ exitCode: 1, stderr: expect.stringContaining(said) })
    }
  })

  test('a secret can be revoked by its id alone, whichever app has it', async () => {
    const service = await createProcess()
    const apps = [await createApp(service), await createApp(service), await createApp(service)]
    for (const { appid, secret_id } of apps) {
      expect(await service.json(['app', 'secret', 'revoke', secret_id])).toEqual({ appid, secret_id })
      const [secret] = await service.json<{ revoked_at: string | null }[]>(['app', 'secret', 'list', appid])
      expect(secret?.revoked_at).toMatch(ISO)
    }
  })

  test('audit events can be limited to a time and to the newest', async () => {
    const service = await createProcess()
    for (let count = 0; count < 3; count += 1) await createApp(service)
    const list = (...options: string[]) => service.json<{ created_at: string }[]>(['audit', 'list', ...options])
    const all = await list()
    expect(await list('--limit', '2')).toEqual(all.slice(0, 2))
    const { created_at = '' } = all.at(-1) ?? {}
    expect(await list('--since', created_at)).toEqual(all)
    const afterThat = new Date(Date.parse(created_at) + 1).toISOString()
    expect(await list('--since', afterThat)).toEqual(all.filter((event) => event.created_at >= afterThat))
    expect(await list('--since', '2100-01-01')).toEqual([])
  })

  test('audit events of apps, users and surveys are one list, however long, and can be filtered by what they concern', async () => {
    const service = await createProcess()
    const { user_id } = await createUser(service, 'li.wei')
    const many = JSON.stringify(Array.from({ length: 1001 }, (_, at) => ({ title: `s${at}`, pages: [] })))
    await service.json(['survey', 'import', '-', '--owner', 'li.wei'], { input: many })
    const { appid } = await createApp(service)
    await service.run(['survey', 'delete', '7'])
    type Event = Readonly<Record<'event_id' | 'created_at' | 'kind' | 'user_id' | 'appid', string>> & {
      readonly survey_id: number | null
    }
    const list = (...options: string[]) => service.json<Event[]>(['audit', 'list', ...options])
    const all = await list()
    const stored = Array.from({ length: 1001 }, (_, at) => `survey.created ${1001 - at}`)
    const told = all.map(({ kind, survey_id }) => `${kind} ${survey_id}`)
    expect(told).toEqual(['survey.deleted 7', 'app.created null', ...stored, 'user.created null'])
    expect(all.map((row) => row.event_id)).toEqual(
      all
        .map((row) => row.event_id)
        .sort()
        .reverse(),
    )
    expect(Object.keys(all[0] ?? {})).toEqual(Object.keys(all[1] ?? {}))
    expect(await list('--limit', '3')).toEqual(all.slice(0, 3))
    for (const { created_at } of [all[0], all[1], all[500], all.at(-1)].flatMap((row) => row ?? [])) {
      expect(await list('--since', created_at)).toEqual(all.filter((row) => row.created_at >= created_at))
    }
    expect(await list('--appid', appid)).toEqual(all.slice(1, 2))
    for (const user of ['li.wei', user_id])
      expect(await list('--username', user)).toEqual(all.filter((row) => row.user_id === user_id))
  })

  test('where there is no survey service, audit list shows the events of apps and users, and says so', async () => {
    const service = await createProcess()
    await createUser(service, 'li.wei')
    const env = { ...process.env, DATA_DIR: service.dataDir, ADMIN_PORT: '0' } as Record<string, string>
    const { child, listening } = spawnServe('token', env)
    onTestFinished(() => void child.kill('SIGKILL'))
    await listening
    const { exitCode, stdout, stderr } = await service.run(['audit', 'list', '--json'])
    expect({ exitCode, events: JSON.parse(stdout) }).toMatchObject({ exitCode: 0, events: [{ kind: 'user.created' }] })
    expect(stderr).toMatch(/^listing without surveys: .*SURVEY_SERVICE_URL$/m)
    expect(readdirSync(service.dataDir)).not.toContain('survey.db')
  })

  test('a command that opens the databases itself removes no event from them, however long it takes', async () => {
    const service = await createProcess()
    await service.run(['migrate'])
    const at = Date.now() - 500 * 86_400_000
    const rows = `WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 4000)
      SELECT n, printf('%012x%08x%016x', ${at}, n, 0) AS id, ${at} AS ms FROM n`
    for (const [file, table, columns] of [
      ['token.db', 'audit_events', `n, id, ms, 'app.created', 'operator', '', '', 'r', 'app_x', '', '', ''`],
      ['survey.db', 'survey_events', `id, ms, 'survey.created', 'operator', '', '', 'r', n, 'user_x', '', 0, 0`],
    ] as const) {
      const db = new Database(path.join(service.dataDir, file))
      db.exec(`INSERT INTO ${table} SELECT ${columns} FROM (${rows})`)
      db.close()
    }
    const env = { PATH: process.env.PATH, DATA_DIR: service.dataDir, JANITOR_INTERVAL_SECONDS: '1' }
    // The command waits for its reader, which begins after the time of the first round.
    const command = '"$0" "$@" | (sleep 3; cat)'
    const list = ['-c', command, process.execPath, PROGRAM, 'audit', 'list', '--json']
    const { stdout } = spawnSync('/bin/sh', list, { env, encoding: 'utf8', maxBuffer: 64 * 1024 * 1024 })
    expect(JSON.parse(stdout)).toHaveLength(8000)
    expect(await service.json(['audit', 'list'])).toHaveLength(8000)
  })

  test('an event from a clock a year behind hides no event after a time, however few are asked for', async () => {
    const service = await createProcess()
    const store = openSqliteTokenStore({ file: path.join(service.dataDir, 'token.db') })
    const now = Date.now()
    const times = [now - 3_000, now - 2_000, now - 366 * 86_400_000]
    for (const [at, createdAtMs] of times.entries()) {
      await store.createUser(userRow(`user ${at}`, { createdAtMs }), byOperator)
    }
    await store.close()
    const since = new Date(now - 60_000).toISOString()
    const list = async (...options: string[]) => {
      const events = await service.json<{ note: string }[]>(['audit', 'list', '--since', since, ...options])
      return events.map(({ note }) => note)
    }
    expect(await list()).toEqual(['user 1', 'user 0'])
    expect(await list('--limit', '1')).toEqual(['user 1'])
  })

  test('surveys that a server keeps in another database are found through the server', async () => {
    const service = await createProcess({ SURVEY_DATABASE_URL: await createDatabase() })
    await createUser(service, 'li.wei')
    await service.start()
    const input = JSON.stringify({ title: 'a', pages: [] })
    await service.json(['survey', 'import', '-', '--owner', 'li.wei'], { input })
    const env = { SURVEY_DATABASE_URL: '' }
    const { exitCode, stdout } = await service.run(['audit', 'list', '--json'], { env })
    const kinds = JSON.parse(stdout).map(({ kind }: { kind: string }) => kind)
    expect({ exitCode, kinds }).toEqual({ exitCode: 0, kinds: ['survey.created', 'user.created'] })
  })

  test('audit events are not listed in part when surveys cannot be read', async () => {
    const service = await createProcess()
    await createUser(service, 'li.wei')
    writeFileSync(path.join(service.dataDir, 'survey.db'), 'these are the words of somebody else, and not a database')
    const { exitCode, stdout, stderr } = await service.run(['audit', 'list', '--json'])
    expect({ exitCode, stdout }).toEqual({ exitCode: 1, stdout: '' })
    expect(stderr).toMatch(/^survey-auth: .*survey\.db is damaged/)
  })

  test('revoking the last valid secret of an app says that none is left', async () => {
    const service = await createProcess()
    const { appid, secret_id } = await createApp(service)
    await service.json(['app', 'secret', 'add', appid, '--name', 'short', '--expires-in-days', '1'])
    const db = new Database(path.join(service.dataDir, 'token.db'))
    db.exec(`UPDATE app_secrets SET expires_at_ms = ${Date.now()} WHERE name = 'short'`)
    db.close()
    const { exitCode, stderr } = await service.run(['app', 'secret', 'revoke', secret_id])
    const told = `the app has no secret left: survey-auth app secret add ${appid} --name NAME\n`
    expect({ exitCode, stderr }).toEqual({ exitCode: 0, stderr: told })
  })

  test.each([
    ['a secret_id that nobody has', 'secret_none'],
    ['a secret in place of its id', 'sas_none'],
  ])('revoking %s is refused, without repeating it', async (_, id) => {
    const service = await createProcess()
    await createApp(service)
    const { exitCode, stdout, stderr } = await service.run(['app', 'secret', 'revoke', id])
    expect({ exitCode, stdout }).toEqual({ exitCode: 1, stdout: '' })
    expect(stderr).toBe(
      'survey-auth: no app has a secret of this id\nsee the ids with: survey-auth app secret list APPID\n',
    )
  })

  test('an app is changed, disabled and enabled', async () => {
    const service = await createProcess()
    const { appid } = await createApp(service)
    const other = 'https://app.example.com/v2'
    const changed = await service.json(['app', 'update', appid, '--name', 'Notes', '--redirect-uri', other])
    expect(changed).toMatchObject({ name: 'Notes', redirect_uris: [other], disabled: false })
    expect(await service.json(['app', 'disable', appid])).toMatchObject({ disabled: true })
    expect(await service.json(['app', 'enable', appid])).toMatchObject({ disabled: false })
  })

  test.each([
    [
      'a callback that is not https',
      ['app', 'create', '--name', 'N', '--redirect-uri', 'http://example.com/'],
      /https/,
    ],
    [
      'an app that is not there',
      ['app', 'show', 'app_none'],
      /no such app: app_none\nsee them with: survey-auth app list\n/,
    ],
    [
      'a user that is not there',
      ['user', 'disable', 'nobody'],
      /no such user: nobody\nsee them with: survey-auth user list; /,
    ],
    ['grants of a user that is not there', ['grant', 'list', '--username', 'nobody'], /no such user: nobody\n/],
    ['grants of an app that is not there', ['grant', 'list', '--appid', 'app_typo'], /no such app: app_typo\n/],
    ['events of an app that is not there', ['audit', 'list', '--appid', 'app_typo'], /no such app: app_typo\n/],
    ['a grant that is not there', ['grant', 'revoke', 'grant_none'], /no such grant: grant_none\nsee .*grant list\n/],
    ['a token in place of a grant', ['grant', 'revoke', 'sat_canary'], /no such grant\nsee .*grant list\n/],
  ])('%s exits 1 with the reason', async (_, args, reason) => {
    const service = await createProcess()
    await service.run(['migrate'])
    const { exitCode, stdout, stderr } = await service.run(args)
    expect({ exitCode, stdout }).toEqual({ exitCode: 1, stdout: '' })
    expect(stderr).toMatch(reason)
  })
})

describe('users', () => {
  test('user create --json prints the user without the password', async () => {
    const service = await createProcess()
    const args = ['user', 'create', '--username', 'li.wei', '--nickname', '李伟', '--password-stdin', '--json']
    const { stdout } = await service.run(args, { input: 'correct horse\n' })
    expect(JSON.parse(stdout)).toEqual({
      user_id: expect.stringMatching(/^user_/),
      username: 'li.wei',
      external_id: '',
      nickname: '李伟',
      avatar: '',
      has_password: true,
      disabled: false,
      created_at: expect.stringMatching(ISO),
    })
  })

  test('a password that no form could carry is refused with the reason', async () => {
    const service = await createProcess()
    const args = ['user', 'create', '--username', 'demo', '--password-stdin']
    const { exitCode, stderr } = await service.run(args, { input: 'pass\tword\n' })
    expect(exitCode).toBe(1)
    expect(stderr).toContain('password: must not contain control characters')
  })

  test('a byte order mark before a password and one newline after it are not part of it, however long it is', async () => {
    const service = await createProcess()
    const create = (username: string, input: string) =>
      service.run(['user', 'create', '--username', username, '--password-stdin'], { input })
    const longest = 'x'.repeat(1024)
    for (const [name, end] of Object.entries({ unix: '\n', windows: '\r\n', none: '' })) {
      expect(await create(name, longest + end), name).toMatchObject({ exitCode: 0 })
      expect(await create(`${name}.marked`, `\ufeff${longest}${end}`), name).toMatchObject({ exitCode: 0 })
    }
    const twice = await create('twice', 'correct horse\n\n')
    expect(twice).toMatchObject({
      exitCode: 1,
      stderr: expect.stringContaining('password: must not contain control characters'),
    })
    const tooLong = await create('long', `${longest}xxxxxx`)
    expect(tooLong).toMatchObject({ exitCode: 1, stderr: 'survey-auth: standard input is longer than 1029 bytes\n' })
  })

  test('a username can be taken only once', async () => {
    const service = await createProcess()
    await createUser(service, 'demo')
    const again = await service.run(['user', 'create', '--username', 'demo', '--password-stdin'], {
      input: 'another one',
    })
    expect(again.exitCode).toBe(1)
    expect(again.stderr).toContain('there is a user of this name')
  })

  test('only the given fields of a profile are changed', async () => {
    const service = await createProcess()
    const created = await createUser(service, 'li.wei')
    const update = (...options: string[]) => service.json(['user', 'update', 'li.wei', ...options])
    const avatar = 'https://img.example/new.png'
    expect(await update('--nickname', '小李')).toEqual({ ...created, nickname: '小李' })
    expect(await update('--avatar', avatar)).toEqual({ ...created, nickname: '小李', avatar })
    expect(await update('--no-nickname')).toEqual({ ...created, nickname: '', avatar })
    expect(await update('--nickname', 'Li', '--no-avatar')).toEqual({ ...created, nickname: 'Li', avatar: '' })
    expect(await service.json(['user', 'show', 'li.wei'])).toMatchObject({ ...created, nickname: 'Li', avatar: '' })
    const events = await service.json<{ note: string }[]>(['audit', 'list', '--limit', '4'])
    expect(events.map(({ note }) => note)).toEqual(['nickname, avatar', 'nickname', 'avatar', 'nickname'])
  })

  test.each([
    { what: 'nothing to change', options: [], exitCode: 2, stderr: 'nothing to change: give --nickname' },
    { what: 'an empty nickname', options: ['--nickname', ''], exitCode: 2, stderr: '--nickname' },
    { what: 'no address', options: ['--avatar', 'me.png'], exitCode: 1, stderr: 'avatar: must begin with https://' },
  ])('a profile update with $what is refused and changes nothing', async ({ options, exitCode, stderr }) => {
    const service = await createProcess()
    const created = await createUser(service, 'li.wei')
    const refused = await service.run(['user', 'update', 'li.wei', ...options])
    expect(refused).toMatchObject({ exitCode, stderr: expect.stringContaining(stderr) })
    expect(await service.json(['user', 'show', 'li.wei'])).toMatchObject(created)
  })

  test('a disabled user is deleted with their surveys, and the name is free again', async () => {
    const service = await createProcess()
    const { user_id } = await createUser(service, 'li.wei')
    const survey = JSON.stringify({ title: 'mine', state: 2, pages: [] })
    for (const owner of ['li.wei', (await createUser(service, 'other')).user_id]) {
      await service.json(['survey', 'import', '-', '--owner', owner], { input: survey })
    }
    const refused = await service.run(['user', 'delete', 'li.wei'])
    expect(refused).toMatchObject({
      exitCode: 1,
      stdout: '',
      stderr: expect.stringContaining('li.wei is not disabled\nfirst: survey-auth user disable li.wei\n'),
    })
    expect(await service.json(['survey', 'list'])).toHaveLength(2)

    await service.json(['user', 'disable', 'li.wei'])
    expect(await service.json(['user', 'delete', user_id])).toEqual({ user_id, username: 'li.wei', surveys: 1 })
    expect(await service.json(['survey', 'list'])).toMatchObject([{ owner: 'other' }])
    expect(await service.json(['user', 'list'])).toMatchObject([{ username: 'other' }])
    const again = await service.run(['user', 'delete', 'li.wei'])
    expect(again).toMatchObject({ exitCode: 1, stderr: expect.stringContaining('there is no such user') })
    expect((await createUser(service, 'li.wei')).user_id).not.toBe(user_id)
  })

  test('a command that is advised can be pasted, whatever a platform has in its ids', async () => {
    const service = await createProcess()
    const id = "it's $(touch x); #7"
    await service.json(['user', 'create', '--username', 'li.wei', '--password-stdin', '--external-id', id], {
      input: 'correct horse',
    })
    const { stderr } = await service.run(['user', 'delete', `external_id:${id}`])
    expect(stderr).toContain("first: survey-auth user disable 'external_id:it'\\''s $(touch x); #7'\n")
  })

  test.each([
    [0, ''],
    [1, '1 survey of the user deleted, the user is not; run this again\n'],
    [2, '2 surveys of the user deleted, the user is not; run this again\n'],
  ])('a deletion that fails after the %i surveys of the user are deleted says so', async (count, said) => {
    const service = await createProcess()
    await createUser(service, 'li.wei')
    const input = JSON.stringify(Array.from({ length: count }, () => ({ title: 'mine', pages: [] })))
    if (count > 0) await service.json(['survey', 'import', '-', '--owner', 'li.wei'], { input })
    await service.json(['user', 'disable', 'li.wei'])
    const db = new Database(path.join(service.dataDir, 'token.db'))
    db.exec(`CREATE TRIGGER refuse BEFORE UPDATE ON users BEGIN SELECT RAISE(ABORT, 'no'); END`)
    const { exitCode, stdout, stderr } = await service.run(['user', 'delete', 'li.wei'])
    expect({ exitCode, stdout }).toEqual({ exitCode: 1, stdout: '' })
    expect(stderr.replace(/^\{.*\n|^creating .*\n/gm, '')).toBe(`${said}survey-auth: internal error\n`)
    db.exec('DROP TRIGGER refuse')
    db.close()
    expect(await service.json(['user', 'delete', 'li.wei'])).toMatchObject({ username: 'li.wei', surveys: 0 })
  })

  test('the deletion of a user without a name deletes no surveys of others', async () => {
    const service = await createProcess()
    await createUser(service, 'li.wei')
    const { user_id } = await service.json<{ user_id: string }>(['user', 'create', '--external-id', '4711'])
    const input = JSON.stringify({ title: 'mine', pages: [] })
    for (const owner of ['li.wei', 'external_id:4711'])
      await service.json(['survey', 'import', '-', '--owner', owner], { input })
    expect(await service.json(['survey', 'list'])).toMatchObject([{ owner: 'li.wei' }, { owner: `~${user_id}` }])
    await service.json(['user', 'disable', 'external_id:4711'])
    expect(await service.json(['user', 'delete', 'external_id:4711'])).toMatchObject({ surveys: 1 })
    expect(await service.json(['survey', 'list'])).toMatchObject([{ owner: 'li.wei' }])
  })

  test('what is to be done first about a user whose name begins with - can be pasted', async () => {
    const service = await createProcess()
    await createUser(service, '-dash')
    const { stderr } = await service.run(['user', 'delete', '--', '-dash'])
    const [, words = ''] = /^first: survey-auth (.+)$/m.exec(stderr) ?? []
    expect(words).toBe('user disable -- -dash')
    expect((await service.run(words.split(' '))).exitCode).toBe(0)
    expect((await service.run(['user', 'delete', '--', '-dash'])).exitCode).toBe(0)
  })

  test('a user_id can be given in place of the name', async () => {
    const service = await createProcess()
    const { user_id } = await createUser(service, 'li.wei')
    const user = { user_id, username: 'li.wei' }
    expect(await service.json(['user', 'disable', user_id])).toMatchObject({ ...user, disabled: true })
    expect(await service.json(['user', 'enable', user_id])).toMatchObject({ ...user, disabled: false })
    expect(await service.json(['user', 'show', user_id])).toMatchObject(user)
    expect(await service.json(['user', 'update', user_id, '--nickname', 'Li'])).toMatchObject(user)
    const changed = await service.json(['user', 'set-password', user_id, '--password-stdin'], {
      input: 'battery staple',
    })
    expect(changed).toEqual({ username: 'li.wei' })
    expect(await service.json(['grant', 'list', '--username', user_id])).toEqual([])
    const events = await service.json<{ user_id: string }[]>(['audit', 'list', '--username', user_id])
    expect(events).toHaveLength(5)
    const input = JSON.stringify({ title: 'mine', state: 2, pages: [] })
    await service.json(['survey', 'import', '-', '--owner', user_id], { input })
    expect(await service.json(['survey', 'list', '--owner', user_id])).toMatchObject([{ owner: 'li.wei' }])
    expect(await service.json(['survey', 'export', '--owner', user_id])).toMatchObject([{ title: 'mine' }])
  })

  test('a user from elsewhere has neither name nor password, and goes by external_id', async () => {
    const service = await createProcess()
    const by = 'external_id:47 11'
    const { user_id } = await service.json<{ user_id: string }>(['user', 'create', '--external-id', '47 11'])
    const user = { user_id, username: `~${user_id}`, external_id: '47 11', has_password: false }
    expect(await service.json(['user', 'list'])).toMatchObject([user])
    expect(await service.json(['user', 'update', by, '--nickname', 'Li'])).toMatchObject({ ...user, nickname: 'Li' })
    const identity = ['--provider', 'corp', '--subject', 's 1']
    await service.run(['user', 'link', by, ...identity])
    expect(await service.json(['user', 'show', by])).toMatchObject({
      ...user,
      identities: [{ provider: 'corp', subject: 's 1', created_at: expect.stringMatching(ISO), last_used_at: null }],
    })
    expect(await service.json(['user', 'unlink', ...identity])).toEqual({ provider: 'corp', subject: 's 1', user_id })
    expect(await service.run(['user', 'unlink', ...identity])).toMatchObject({ exitCode: 1 })
    expect(await service.json(['user', 'sign-out', by])).toEqual({ sessions: 0 })
    expect(await service.json(['grant', 'list', '--username', by])).toEqual([])
    const events = await service.json<{ kind: string; note: string }[]>(['audit', 'list', '--username', by])
    expect(events.map(({ kind, note }) => [kind, note])).toEqual([
      ['identity.unlinked', 'corp s 1'],
      ['identity.linked', 'corp s 1'],
      ['user.updated', 'nickname'],
      ['user.created', 'external_id 47 11'],
    ])
    await service.json(['user', 'update', by, '--external-id', '48'])
    expect((await service.run(['user', 'show', by])).stderr).toContain('there is no such user: 47 11')
    await service.json(['user', 'disable', 'external_id:48'])
    expect(await service.json(['user', 'delete', 'external_id:48'])).toMatchObject({ user_id })
  })

  test('events and grants of a deleted user are listed by the user_id from the audit trail', async () => {
    const service = await createProcess()
    const { user_id } = await createUser(service, 'li.wei')
    await createUser(service, 'other')
    await service.json(['user', 'disable', 'li.wei'])
    const deleted = await service.run(['user', 'delete', 'li.wei'])
    expect(deleted.stdout).toBe(`user_id   ${user_id}\nusername  li.wei\nsurveys   0\n`)
    for (const list of ['audit', 'grant']) {
      expect(await service.run([list, 'list', '--username', 'li.wei'])).toMatchObject({
        exitCode: 1,
        stderr: expect.stringMatching(/there is no such user: li.wei\n.*user_id in: survey-auth audit list\n$/),
      })
    }
    const all = await service.json<unknown[]>(['audit', 'list'])
    expect(all).toContainEqual(expect.objectContaining({ user_id, note: 'li.wei' }))
    const events = await service.json<{ kind: string }[]>(['audit', 'list', '--username', user_id])
    expect(events.map(({ kind }) => kind)).toEqual(['user.deleted', 'user.disabled', 'user.created'])
    expect(await service.json(['grant', 'list', '--username', user_id])).toEqual([])
    const typo = await service.run(['audit', 'list', '--username', `${user_id}x`])
    expect(typo).toMatchObject({ exitCode: 1, stderr: expect.stringContaining('there is no such user') })
  })
})

describe('surveys', () => {
  const survey = (title: string) => ({
    title,
    state: 2,
    pages: [
      {
        questions: [
          { type: 'radio', title: '喜欢吗?', options: [{ text: '是' }, { text: '否' }] },
          { type: 'nps', title: 'NPS' },
        ],
      },
    ],
  })

  test('an import prints the stored surveys, and importing an export changes nothing', async () => {
    const service = await createProcess()
    await createUser(service, 'owner')
    const file = path.join(service.dataDir, 'surveys.json')
    writeFileSync(file, JSON.stringify([survey('one'), survey('two')]))
    const stored = await service.json<{ survey_id: number }[]>(['survey', 'import', file, '--owner', 'owner'])
    expect(stored).toEqual([
      { survey_id: 1, hash: expect.stringMatching(/^[0-9a-f]{4}$/), title: 'one', state: 2 },
      { survey_id: 2, hash: expect.stringMatching(/^[0-9a-f]{4}$/), title: 'two', state: 2 },
    ])

    const { stdout: exported } = await service.run(['survey', 'export', '--owner', 'owner'])
    const again = await service.run(['survey', 'import', '-', '--owner', 'owner'], { input: exported })
    expect(again.exitCode).toBe(0)
    const { stdout: exportedAgain } = await service.run(['survey', 'export', '--owner', 'owner'])
    expect(exportedAgain).toBe(exported)
  })

  test('input that is not UTF-8 is refused, from a file and from standard input', async () => {
    const service = await createProcess()
    await createUser(service, 'owner')
    const file = path.join(service.dataDir, 'latin1.json')
    const input = Buffer.from('{"title":"caf\u00e9"}', 'latin1')
    writeFileSync(file, input)
    const fromFile = await service.run(['survey', 'import', file, '--owner', 'owner'])
    expect(fromFile).toMatchObject({ exitCode: 1, stderr: `survey-auth: ${file} is not UTF-8\n` })
    const fromInput = await service.run(['survey', 'import', '-', '--owner', 'owner'], { input })
    expect(fromInput).toMatchObject({ exitCode: 1, stderr: 'survey-auth: standard input is not UTF-8\n' })
    expect(await service.json(['survey', 'list'])).toEqual([])
  })

  test('a byte order mark before a survey is ignored, in a file and on standard input', async () => {
    const service = await createProcess()
    await createUser(service, 'owner')
    const file = path.join(service.dataDir, 'marked.json')
    const input = `\ufeff${JSON.stringify(survey('marked'))}`
    writeFileSync(file, input)
    await service.json(['survey', 'import', file, '--owner', 'owner'])
    await service.json(['survey', 'import', '-', '--owner', 'owner'], { input })
    expect(await service.json(['survey', 'list'])).toMatchObject([{ title: 'marked' }, { title: 'marked' }])
  })
})

describe('a server', () => {
  test('that cannot be reached is reported with the reason', async () => {
    const at = `127.0.0.1:${await freePort()}`
    const service = await createProcess({ RPC_TIMEOUT_MS: '1000', TOKEN_SERVICE_URL: `http://${at}` })
    const { exitCode, stdout, stderr } = await service.run(['app', 'list'])
    expect({ exitCode, stdout }).toEqual({ exitCode: 69, stdout: '' })
    expect(stderr).toContain(
      `survey-auth: no answer from the token service at http://${at}: connect ECONNREFUSED ${at}`,
    )
  })

  test('that hangs is reported as not answering, with how long the command waited', async () => {
    const service = await createProcess({ RPC_TIMEOUT_MS: '1000' })
    await service.start()
    service.signal('SIGSTOP')
    const { exitCode, stdout, stderr } = await service.run(['app', 'list'])
    service.signal('SIGCONT')
    const url = `unix:${path.join(service.dataDir, 'rpc.sock')}`
    expect({ exitCode, stdout }).toEqual({ exitCode: 69, stdout: '' })
    expect(stderr).toContain(
      `no answer from the token service at ${url}: it does not answer health checks: see its /readyz\nwaited 1 s, RPC_TIMEOUT_MS\n`,
    )
  })

  test('is not asked with a certificate that has ended: the command says so', async () => {
    const service = await createProcess()
    const authority = createAuthority()
    const files = pemFiles(service.dataDir, materialOf(authority, authority.issue('DNS:admin.test', 0)))
    const env = { ...files, TOKEN_SERVICE_URL: `https://127.0.0.1:${await freePort()}` }
    const { exitCode, stdout, stderr } = await service.run(['app', 'list'], { env })
    expect({ exitCode, stdout }).toEqual({ exitCode: 78, stdout: '' })
    expect(stderr).toMatch(
      /^survey-auth: the certificate \S+cert\S* ended at \d{4}-\S+Z\nput a new one in its place, or name another in RPC_TLS_CERT\n$/,
    )
  })

  test('that is one of several is used while the others cannot be reached, and none of them is waited for', async () => {
    const service = await startProcess()
    const urls = [`http://127.0.0.1:${await freePort()}`, `unix:${path.join(service.dataDir, 'rpc.sock')}`]
    const env = { TOKEN_SERVICE_URL: [`unix:${service.dataDir}/nobody.sock`, ...urls].join(',') }
    const { exitCode, stdout, stderr } = await service.run(['app', 'list', '--json'], { env })
    expect({ exitCode, stdout, stderr }).toEqual({ exitCode: 0, stdout: '[]\n', stderr: '' })
  })

  test.each(['one', 'several'])('at a socket on which nobody listens is named, without waiting: %s', async (count) => {
    const service = await createProcess()
    const url = ['a', 'b'].map((name) => `unix:${path.join(service.dataDir, name)}`).slice(count === 'one' ? 1 : 0)
    const env = { TOKEN_SERVICE_URL: url.join(',') }
    const { exitCode, stdout, stderr } = await service.run(['app', 'list'], { env })
    expect({ exitCode, stdout }).toEqual({ exitCode: 69, stdout: '' })
    expect(stderr).toBe(
      `survey-auth: no server answers at ${url.join(' or ')}, or this user may not connect to it\nstart the server, or set the variable that names it to another one\n`,
    )
  })
})

describe('tables', () => {
  test('a reader that closes the pipe early is not a failure, and hides none', async () => {
    const { dataDir } = await createProcess()
    const piped = (words: string, env = {}) => {
      const pipeline = `{ "$0" "$1" ${words} 2>/dev/null; echo "exit $?" >&2; } | true`
      const all = { PATH: process.env.PATH, DATA_DIR: dataDir, ...env }
      return spawnSync('sh', ['-c', pipeline, process.execPath, PROGRAM], { env: all, encoding: 'utf8' }).stderr
    }
    expect(piped('config --help')).toBe('exit 0\n')
    expect(piped('doctor', { PUBLIC_URL: 'http://a.example' })).toBe('exit 1\n')
  })

  test.each([
    ['nobody reads', '2>&1 >made | true'],
    ['a full disk takes no more of', '2>/dev/full >made'],
  ])('a command whose messages %s does its work', async (_, redirection) => {
    const service = await createProcess()
    const command = `app create --json --name B --redirect-uri ${CALLBACK}`
    const script = `{ "$0" "$1" ${command}; echo $? >exit; } ${redirection}`
    const env = { PATH: process.env.PATH, DATA_DIR: service.dataDir }
    spawnSync('sh', ['-c', script, process.execPath, PROGRAM], { env, cwd: service.dataDir })
    const contentOf = (name: string) => readFileSync(path.join(service.dataDir, name), 'utf8')
    expect(contentOf('exit')).toBe('0\n')
    expect((await service.run(['app', 'list'])).stdout).toContain(JSON.parse(contentOf('made')).appid)
  })

  /** Runs a command whose output a full disk does not take. */
  function unwritten({ dataDir }: ServiceProcess, words: string) {
    const env = { PATH: process.env.PATH, DATA_DIR: dataDir }
    const script = `exec "$0" "$1" ${words} > /dev/full`
    const { status, stderr } = spawnSync('sh', ['-c', script, process.execPath, PROGRAM], { env, encoding: 'utf8' })
    return { status, stderr }
  }

  test.each([
    ['a table', 'app list'],
    ['JSON', 'app list --json'],
    ['help', 'config --help'],
  ])('a full disk is reported in one line: %s', async (_, words) => {
    const service = await createProcess()
    for (let n = 0; n < 2; n += 1) await createApp(service)
    expect(unwritten(service, words)).toEqual({
      status: 1,
      stderr: 'survey-auth: the output cannot be written (ENOSPC)\n',
    })
  })
})

describe('files', () => {
  test('databases and their directory are accessible to the owner only', async () => {
    const service = await createProcess()
    const dataDir = path.join(service.dataDir, 'fresh')
    await service.run(['migrate'], { env: { DATA_DIR: dataDir } })
    expect(statSync(dataDir).mode & 0o777).toBe(0o700)
    for (const name of ['token.db', 'survey.db']) expect(statSync(path.join(dataDir, name)).mode & 0o777).toBe(0o600)
  })

  test('a backup is one private file, never overwrites, and unpacks into a working data directory', async () => {
    const service = await createProcess()
    const { secret } = await createApp(service)
    const file = path.join(service.dataDir, 'backup.tar')
    expect((await service.run(['backup', file])).exitCode).toBe(0)
    expect(statSync(file).mode & 0o777).toBe(0o600)
    expect(readFileSync(file).includes(secret)).toBe(false)

    const again = await service.run(['backup', file])
    expect(again.exitCode).toBe(1)
    expect(again.stderr).toContain('exists already')

    const restored = path.join(service.dataDir, 'restored')
    mkdirSync(restored, { mode: 0o700 })
    execFileSync('tar', ['-xpf', file, '-C', restored])
    const names = ['token.db', 'token.db-journal', 'token.db-shm', 'token.db-wal']
    expect(readdirSync(restored).sort()).toEqual(names)
    for (const name of names) expect(statSync(path.join(restored, name)).mode & 0o777).toBe(0o600)
    const apps = await service.run(['app', 'list', '--json'], { env: { DATA_DIR: restored } })
    expect(JSON.parse(apps.stdout)).toHaveLength(1)
    const doctor = await service.run(['doctor'], { env: { DATA_DIR: restored } })
    expect(doctor.exitCode).toBe(0)
  })

  /** Takes a backup with one user and survey, lets another two be stored, and unpacks it over them. */
  async function unpackOverLater(service: ServiceProcess, end: () => Promise<void>): Promise<void> {
    await service.start()
    await createSurveyOf(service, 'before')
    const file = path.join(service.dataDir, 'backup.tar')
    expect((await service.run(['backup', file])).exitCode).toBe(0)
    await createSurveyOf(service, 'since')
    await end()
    execFileSync('tar', ['-xf', file, '-C', service.dataDir])
  }

  async function createSurveyOf(service: ServiceProcess, username: string): Promise<void> {
    await createUser(service, username)
    await service.json(['survey', 'import', '-', '--owner', username], { input: `{"title":"${username}","pages":[]}` })
  }

  async function namesIn(service: ServiceProcess): Promise<readonly (string | undefined)[]> {
    const users = await service.json<{ username: string }[]>(['user', 'list'])
    const surveys = await service.json<{ title: string }[]>(['survey', 'list'])
    return [...users.map(({ username }) => username), ...surveys.map(({ title }) => title)]
  }

  test('a backup that is unpacked over the files of a service that was killed replaces all that was stored', async () => {
    const service = await createProcess()
    await unpackOverLater(service, () => service.kill())
    expect((await service.run(['doctor'])).exitCode).toBe(0)
    await service.start()
    expect(await namesIn(service)).toEqual(['before', 'before'])
  })

  test('a backup unpacked while a service still holds the old files loses nothing that the next one stores', async () => {
    const left = await createProcess()
    await unpackOverLater(left, async () => undefined)
    const next = new ServiceProcess(left.dataDir, await freePort(), socketOf(left.dataDir))
    onTestFinished(() => next.kill())
    await next.start()
    await createSurveyOf(next, 'after')
    await next.kill()
    await left.kill() // the index of the log is built anew once nobody has it open
    await next.start()
    expect(await namesIn(next)).toEqual(['after', 'before', 'before', 'after'])
  })

  test.each(['token', 'survey'])('a %s database that needs a newer program is not backed up', async (name) => {
    const service = await createProcess()
    await service.run(['migrate'])
    const db = new Database(path.join(service.dataDir, `${name}.db`))
    db.pragma(`user_version = ${98 * 0x10000 + 99}`)
    db.close()
    const { exitCode, stdout, stderr } = await service.run(['backup', path.join(service.dataDir, 'backup.tar')])
    expect({ exitCode, stdout }).toEqual({ exitCode: 78, stdout: '' })
    expect(stderr).toMatch(
      new RegExp(
        `${name}\\.db has schema version 99, which needs a program that knows 98; this one knows \\d+: run a newer program\n$`,
      ),
    )
    expect(readdirSync(service.dataDir).filter((file) => file.includes('backup'))).toEqual([])
  })

  test.each(['token', 'survey'])('a damaged %s database is named and not backed up', async (name) => {
    const service = await createProcess()
    await service.run(['migrate'])
    const database = path.join(service.dataDir, `${name}.db`)
    writeFileSync(database, 'these are the words of somebody else, and not a database')
    for (const command of [['backup', path.join(service.dataDir, 'backup.tar')], ['migrate']]) {
      const { exitCode, stderr } = await service.run(command)
      expect({ exitCode, stderr }).toEqual({
        exitCode: 1,
        stderr: `survey-auth: ${database} is damaged or not a database (SQLITE_NOTADB)\nrestore a backup\n`,
      })
    }
    expect((await service.run(['doctor'])).stdout).toMatch(
      new RegExp(`${name} database +wrong +${database} is damaged`),
    )
    expect(readdirSync(service.dataDir).filter((file) => file.includes('backup'))).toEqual([])
  })

  test.each([
    ['token', 'users', 'user list'],
    ['token', 'users', 'user create --username other --password-stdin'],
    ['survey', 'surveys', 'survey export'],
  ])(
    'a damaged page of the %s database, of %s, that %s finds is reported with its file',
    async (name, table, words) => {
      const service = await createProcess()
      await createUser(service, 'li.wei')
      await service.json(['survey', 'import', '-', '--owner', 'li.wei'], { input: '{"title":"mine","pages":[]}' })
      const file = path.join(service.dataDir, `${name}.db`)
      damageRoot(file, table)
      const { exitCode, stderr } = await service.run(words.split(' '), { input: 'correct horse\n' })
      expect({ exitCode, stderr }).toEqual({
        exitCode: 1,
        stderr: expect.stringMatching(
          /^survey-auth: \S+ is damaged or not a database \(SQLITE_CORRUPT\w*\)\nrestore a backup\n$/,
        ),
      })
      expect(stderr).toContain(` ${file} is damaged`)
    },
  )

  /** Overwrites the first page of a table. */
  function damageRoot(file: string, table: string): void {
    const db = new Database(file)
    const root = db.prepare('SELECT rootpage FROM sqlite_schema WHERE name = ?').pluck().get(table)
    const bytes = Number(db.pragma('page_size', { simple: true }))
    db.close()
    const descriptor = openSync(file, 'r+')
    writeSync(descriptor, Buffer.alloc(bytes, 0xff), 0, bytes, (Number(root) - 1) * bytes)
    closeSync(descriptor)
  }

  test('migrate does not read a whole database', async () => {
    const service = await createProcess()
    await service.run(['migrate'])
    const db = new Database(path.join(service.dataDir, 'token.db'))
    db.exec('CREATE TABLE padding (bytes BLOB); INSERT INTO padding VALUES (zeroblob(60000000))')
    db.close()
    const tell = `process.on('exit', () => console.error(fs.readFileSync('/proc/self/io', 'utf8')))`
    const script = encodeURIComponent(`import fs from 'node:fs'; ${tell}`)
    const env = { NODE_OPTIONS: `--import=data:text/javascript,${script}` }
    const { exitCode, stderr } = await service.cli(['migrate'], { env })
    expect(exitCode).toBe(0)
    expect(Number(/^rchar: (\d+)$/m.exec(stderr)?.[1])).toBeLessThan(50_000_000)
  })

  test('surveys are backed up before the users who own them', async () => {
    const service = await createProcess()
    for (const name of ['token.db', 'survey.db']) writeFileSync(path.join(service.dataDir, name), 'no database')
    const { stderr } = await service.run(['backup', path.join(service.dataDir, 'backup.tar')])
    expect(stderr).toContain(`${path.join(service.dataDir, 'survey.db')} is damaged`) // surveys are copied first
  })

  test.each([
    'backup backup.tar',
    'app list',
    'app disable app_x',
    'app secret add app_x --name 2027',
    'user list',
    'user delete li.wei',
    'grant revoke grant_x',
    'audit list',
    'survey list',
    'survey export',
    'survey import - --owner li.wei',
  ])('where there is no database, %s creates none, and names DATA_DIR', async (words) => {
    const service = await createProcess()
    const input = '{"title":"mine","pages":[]}'
    expect(await service.run(words.split(' '), { input })).toEqual({
      exitCode: 1,
      stdout: '',
      stderr: `survey-auth: there is no database in ${service.dataDir}\nset DATA_DIR to the same value as the server\n`,
    })
    expect(readdirSync(service.dataDir)).toEqual([])
  })

  const COMMANDS_ON_EXISTING = ['app list', 'user delete li.wei', 'audit list', 'survey list', 'grant revoke grant_x']

  test.each([
    ['of no bytes', ''],
    ['in which no table was made', 'journal_mode = WAL'],
  ])(
    'in a database file %s, commands on existing data create no tables, and others say that they do',
    async (_, sql) => {
      const service = await createProcess()
      const file = path.join(service.dataDir, 'token.db')
      writeFileSync(file, '')
      const db = new Database(file)
      if (sql !== '') db.pragma(sql)
      db.close()
      const before = readFileSync(file)
      for (const words of COMMANDS_ON_EXISTING) {
        expect(await service.run(words.split(' ')), words).toEqual({
          exitCode: 1,
          stdout: '',
          stderr: `survey-auth: ${file} holds nothing\nrestore a backup, or set DATA_DIR to the same value as the server\n`,
        })
        expect(readFileSync(file).equals(before), words).toBe(true)
      }
      const created = await service.run(['app', 'create', '--name', 'N', '--redirect-uri', CALLBACK])
      expect(created).toMatchObject({
        exitCode: 0,
        stderr: expect.stringContaining(`creating a new database: ${file}\n`),
      })
    },
  )

  test.each([1, 511])('a database file cut off after %i bytes is damaged, and stays as it is', async (size) => {
    const service = await createProcess()
    await createApp(service)
    const file = path.join(service.dataDir, 'token.db')
    truncateSync(file, size)
    const rest = readFileSync(file)
    for (const words of [
      ...COMMANDS_ON_EXISTING,
      'migrate',
      'serve',
      `app create --name N --redirect-uri ${CALLBACK}`,
    ]) {
      const { exitCode, stdout, stderr } = await service.run(words.split(' '))
      expect({ words, exitCode, stdout, stderr: stderr.replace(/^\{.*\n/gm, '') }).toEqual({
        words,
        exitCode: 1,
        stdout: '',
        stderr: `survey-auth: ${file} is damaged or not a database (SQLITE_NOTADB)\nrestore a backup\n`,
      })
      expect(readFileSync(file).equals(rest), words).toBe(true)
    }
    expect((await service.run(['doctor'])).stdout).toContain(`${file} is damaged or not a database`)
  })

  test('in an empty PostgreSQL database, commands on existing data create no tables and name its variable', async () => {
    const url = await createDatabase()
    const service = await createProcess({ TOKEN_DATABASE_URL: url, SURVEY_DATABASE_URL: url })
    const refused = {
      exitCode: 1,
      stdout: '',
      stderr:
        'survey-auth: there are no tables of the token database at its address\nset TOKEN_DATABASE_URL to the same value as the server\n',
    }
    for (const words of COMMANDS_ON_EXISTING) {
      expect(await service.run(words.split(' ')), words).toEqual(refused)
    }
    expect(await query(url, `SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace`)).toEqual([])

    const created = ['user', 'create', '--username', 'li.wei', '--password-stdin']
    expect(await service.run(created, { input: 'correct horse battery' })).toMatchObject({
      exitCode: 0,
      stderr: 'creating the tables of the token database\n',
    })
    expect(await service.run(['audit', 'list'])).toMatchObject({
      exitCode: 0,
      stderr: 'listing without surveys: there are none here; if they are elsewhere, set SURVEY_SERVICE_URL\n',
    })
    expect(await service.run(['survey', 'list'])).toMatchObject({
      exitCode: 0,
      stderr: 'creating the tables of the survey database\n',
    })
  })

  test('with a token service elsewhere, surveys are not looked for where there is no database', async () => {
    const service = await startProcess()
    const elsewhere = path.join(service.dataDir, 'elsewhere')
    const env = { DATA_DIR: elsewhere, TOKEN_SERVICE_URL: `unix:${path.join(service.dataDir, 'rpc.sock')}` }
    const { exitCode, stderr } = await service.run(['survey', 'list'], { env })
    expect(exitCode).toBe(1)
    expect(stderr).toContain(`there is no database in ${elsewhere}\n`)
    expect(existsSync(elsewhere)).toBe(false)
  })

  test.each(['token.db', 'survey.db'])('a backup is not made of a %s that holds nothing', async (name) => {
    const service = await createProcess()
    await service.run(['migrate'])
    truncateSync(path.join(service.dataDir, name))
    const { exitCode, stderr } = await service.run(['backup', path.join(service.dataDir, 'backup.tar')])
    expect(stderr).toMatch(
      new RegExp(`^survey-auth: \\S+/${name} holds nothing\nrestore a backup, or set DATA_DIR .+\n$`),
    )
    expect([exitCode, readdirSync(service.dataDir).filter((file) => file.includes('backup'))]).toEqual([1, []])
  })

  test('a backup into a folder that does not exist says so', async () => {
    const service = await createProcess()
    await service.run(['migrate'])
    const file = path.join(service.dataDir, 'none', 'backup.tar')
    const stderr = `survey-auth: cannot write ${file}: its folder does not exist\n`
    expect(await service.run(['backup', file])).toMatchObject({ exitCode: 1, stderr })
  })

  test('a backup for which there is no room says so, and leaves nothing', async () => {
    const service = await createProcess()
    await service.run(['migrate'])
    const file = path.join(service.dataDir, 'backup.tar')
    const command = `trap '' XFSZ; ulimit -f 32; exec "$0" "$@"` // no file larger than 16 or 32 KiB
    const { status, stderr } = spawnSync('/bin/sh', ['-c', command, process.execPath, PROGRAM, 'backup', file], {
      env: { PATH: process.env.PATH, DATA_DIR: service.dataDir },
      encoding: 'utf8',
    })
    expect(stderr).toMatch(/^survey-auth: cannot write \S+: disk I\/O error \(SQLITE_IOERR_[A-Z]+\)\n$/)
    expect([status, stderr.includes(file)]).toEqual([1, true])
    expect(readdirSync(service.dataDir).filter((name) => name.includes('backup'))).toEqual([])
  })
})
