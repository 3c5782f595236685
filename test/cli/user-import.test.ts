// Accounts of another system by command line.
import { readFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { describe, expect, test, vi } from 'vitest'
import { csvRows, jsonDocument, jsonLines, open } from '../../bin/records.js'
import { createProcess, type ServiceProcess } from '../harness/process.js'
import { temporaryDirectory } from '../store/temporary-directory.js'

vi.setConfig({ testTimeout: 120_000 }) // each test runs several commands

// Both of `correct horse`.
const BCRYPT = '$2b$04$0123456789012345678901abcdefghijklmnopqrstuvwxyzABCDE'
const DJANGO = 'pbkdf2_sha256$10$salt$kHLFGZkfeQQukTZqciW9BfYBpnnPz1DIhN3weN7Jzjw='

interface Totals {
  readonly read: number
  readonly created: number
  readonly unchanged: number
  readonly updated: number
  readonly refused: number
}

function fileOf(service: ServiceProcess, name: string, content: string): string {
  const file = path.join(service.dataDir, name)
  writeFileSync(file, content)
  return file
}

const lines = (...records: readonly unknown[]) =>
  records.map((record) => (typeof record === 'string' ? record : JSON.stringify(record))).join('\n')

const usersOf = (service: ServiceProcess) =>
  service.json<{ username: string; external_id: string; nickname: string; disabled: boolean; created_at: string }[]>([
    'user',
    'list',
  ])

test('an import makes users, says what it refuses and why, and exits with 3', async () => {
  const service = await createProcess()
  const created_at = '2020-02-03T04:05:06.000Z'
  const file = fileOf(
    service,
    'users.ndjson',
    lines(
      { external_id: '1', username: 'ann', nickname: '安', password_hash: BCRYPT, created_at },
      '',
      { external_id: '2', identities: [{ provider: 'corp', subject: 's-2' }], disabled: true },
      '{"external_id": "3"',
      { nickname: 'nobody' },
      { username: 'ben', password_hash: '{noop}canary-password' },
      { external_id: '1', username: 'cat' },
      { username: 'dan', admin: true },
    ),
  )
  const report = path.join(service.dataDir, 'refused.ndjson')
  const { exitCode: code, stdout, stderr } = await service.run(['user', 'import', file, '--report', report, '--json'])
  expect(code).toBe(3)
  expect(JSON.parse(stdout)).toMatchObject({ read: 7, created: 2, refused: 5 })
  const refused = readFileSync(report, 'utf8')
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line))
  expect(refused).toEqual([
    { line: 4, reason: 'is no JSON' },
    { line: 5, reason: 'needs an external_id or a username' },
    { line: 6, reason: 'this is a password in clear text, not a hash', username: 'ben' },
    { line: 7, reason: 'is given twice in this import', external_id: '1', username: 'cat' },
    { line: 8, reason: expect.stringContaining('admin') },
  ])
  expect(stderr + JSON.stringify(refused)).not.toContain('canary-password')
  const users = await usersOf(service)
  expect(users).toHaveLength(2)
  expect(users.find(({ username }) => username === 'ann')).toMatchObject({
    external_id: '1',
    nickname: '安',
    created_at,
  })
  expect(users.find(({ external_id }) => external_id === '2')).toMatchObject({ disabled: true })
  expect(await service.json(['user', 'show', 'external_id:2'])).toMatchObject({
    identities: [expect.objectContaining({ provider: 'corp', subject: 's-2' })],
  })
})

test('the same import again changes nothing; another one updates when that is asked for', async () => {
  const service = await createProcess()
  const file = fileOf(service, 'users.ndjson', lines({ external_id: '1', username: 'ann', password_hash: BCRYPT }))
  const importAgain = (...options: string[]) => service.json<Totals>(['user', 'import', file, ...options])
  expect(await importAgain()).toMatchObject({ created: 1 })
  expect(await importAgain()).toMatchObject({ created: 0, unchanged: 1, refused: 0 })
  fileOf(service, 'users.ndjson', lines({ external_id: '1', username: 'ann', nickname: 'Ann' }))
  expect((await service.run(['user', 'import', file])).stderr).toContain(
    'line 1: the user is there already, and differs',
  )
  expect(await importAgain('--on-existing', 'update', '--dry-run')).toMatchObject({ updated: 1 })
  expect(await importAgain('--on-existing', 'update')).toMatchObject({ updated: 1 })
  expect(await importAgain('--on-existing', 'update')).toMatchObject({ unchanged: 1 })
})

test('an update keeps the nickname and avatar that a record does not have, and empties what it says is none', async () => {
  const service = await createProcess()
  const avatar = 'https://img.example/a'
  const file = fileOf(service, 'users.ndjson', lines({ external_id: '1', nickname: 'Ann', avatar }))
  const update = (of = file) => service.json<Totals>(['user', 'import', of, '--on-existing', 'update'])
  await update()
  for (const [said, outcome, kept] of [
    [{}, { unchanged: 1 }, { nickname: 'Ann', avatar }],
    [{ nickname: '' }, { updated: 1 }, { nickname: '', avatar }],
    [{ avatar: null }, { updated: 1 }, { nickname: '', avatar: '' }],
  ] as const) {
    fileOf(service, 'users.ndjson', lines({ external_id: '1', ...said }))
    expect(await update()).toMatchObject(outcome)
    expect(await service.json(['user', 'show', 'external_id:1'])).toMatchObject(kept)
  }
  const csv = fileOf(service, 'users.csv', 'external_id,nickname\n1,Ann\n')
  expect(await update(csv)).toMatchObject({ updated: 1 })
  fileOf(service, 'users.csv', 'external_id,nickname\n1,\n')
  expect(await update(csv)).toMatchObject({ unchanged: 1 })
})

test('a dry run needs no more than the file, and stores nothing', async () => {
  const service = await createProcess()
  const file = fileOf(service, 'users.ndjson', lines({ external_id: '1' }))
  const { stdout, exitCode: code } = await service.run(['user', 'import', file, '--dry-run'])
  expect({ code, stdout }).toEqual({ code: 0, stdout: expect.stringMatching(/^dry_run +yes$/m) })
  expect(await usersOf(service)).toEqual([])
})

test('an import can begin in the middle', async () => {
  const service = await createProcess()
  const file = fileOf(service, 'users.ndjson', lines({ external_id: '1' }, { external_id: '2' }, { external_id: '3' }))
  expect(await service.json(['user', 'import', file, '--from', '3'])).toMatchObject({ read: 1, created: 1 })
  expect((await usersOf(service)).map(({ external_id }) => external_id)).toEqual(['3'])
})

test('more users than one call takes are imported, beside a running server', async () => {
  const service = await createProcess()
  await service.start()
  const records = Array.from({ length: 450 }, (_, n) => ({
    external_id: `${n}`,
    username: `user${n}`,
    password_hash: DJANGO,
  }))
  const file = fileOf(service, 'users.ndjson', lines(...records))
  expect(await service.json(['user', 'import', file])).toMatchObject({ read: 450, created: 450 })
  expect(await service.json(['user', 'hashes'])).toEqual([{ kind: 'pbkdf2-sha256 i=10,l=32', users: 450, own: false }])
  await service.stop()
})

describe('reads', () => {
  test('CSV with a header', async () => {
    const service = await createProcess()
    const csv =
      'external_id,username,nickname,disabled,password_hash\r\n1,ann,"Ann, or\nAnna",true,\r\n2,ben,,,$bad\r\n'
    const { exitCode: code, stderr } = await service.run(['user', 'import', fileOf(service, 'users.csv', csv)])
    expect(code).toBe(3)
    expect(stderr).toContain('line 4: the password hash is in no notation that can be compared')
    expect(await usersOf(service)).toMatchObject([{ external_id: '1', username: 'ann', disabled: true }])
  })

  test.each([
    ['lines', jsonLines, (n: number) => lines(...Array.from({ length: n }, () => ({ external_id: 'x'.repeat(99) })))],
    ['CSV', csvRows, (n: number) => `external_id\n${`${'x'.repeat(99)}\n`.repeat(n)}`],
    ['a document', jsonDocument, (n: number) => JSON.stringify(Array.from({ length: n }, () => ({})))],
  ] as const)('%s, and says of each record how much of the file has been read', async (_, recordsIn, textOf) => {
    const file = path.join(temporaryDirectory(), 'file')
    writeFileSync(file, textOf(2_000))
    const shares: number[] = []
    for await (const { share } of recordsIn(open(file))) shares.push(share ?? Number.NaN)
    expect(shares).toEqual(shares.toSorted((a, b) => a - b))
    expect([shares.length, shares[0], shares.at(-1)]).toEqual([2_000, expect.toSatisfy((first) => first < 0.5), 1])
  })

  test('standard input', async () => {
    const service = await createProcess()
    const input = lines({ external_id: '1' })
    expect(await service.json(['user', 'import', '-'], { input })).toMatchObject({ created: 1 })
  })

  test("Keycloak's export of a realm", async () => {
    const service = await createProcess()
    const credentials = [
      {
        type: 'password',
        secretData: JSON.stringify({ value: 'kHLFGZkfeQQukTZqciW9BfYBpnnPz1DIhN3weN7Jzjw=', salt: 'c2FsdA==' }),
        credentialData: JSON.stringify({ hashIterations: 27_500, algorithm: 'pbkdf2-sha256' }),
      },
    ]
    const argon2 = {
      type: 'password',
      secretData: JSON.stringify({
        value: 'kHLFGZkfeQQukTZqciW9BfYBpnnPz1DIhN3weN7Jzjw=',
        salt: 'c2FsdHNhbHRzYWx0c2FsdA==',
      }),
      credentialData: JSON.stringify({
        hashIterations: 5,
        algorithm: 'argon2',
        additionalParameters: {
          hashLength: ['32'],
          memory: ['7168'],
          type: ['id'],
          version: ['1.3'],
          parallelism: ['1'],
        },
      }),
    }
    const federatedIdentities = [{ identityProvider: 'corp', userId: 's-1', userName: 'ann@corp.example' }]
    const users = [
      {
        id: 'k1',
        username: 'ann',
        firstName: 'Ann',
        lastName: 'Lee',
        enabled: true,
        createdTimestamp: 1_600_000_000_000,
        credentials,
        federatedIdentities,
      },
      { id: 'k2', username: 'ben', enabled: false, credentials: [argon2] },
    ]
    const file = fileOf(service, 'realm.json', JSON.stringify({ realm: 'main', users }))
    expect(await service.json(['user', 'import', file, '--convert', 'keycloak'])).toMatchObject({ created: 2 })
    expect(await service.json(['user', 'hashes'])).toMatchObject([
      { kind: 'argon2id v=19,m=7168,t=5,p=1' },
      { kind: 'pbkdf2-sha256 i=27500,l=32' },
    ])
    expect(await usersOf(service)).toMatchObject([
      { external_id: 'k1', nickname: 'Ann Lee', disabled: false, created_at: '2020-09-13T12:26:40.000Z' },
      { external_id: 'k2', disabled: true },
    ])
  })

  test("Auth0's exports", async () => {
    const service = await createProcess()
    const file = fileOf(
      service,
      'auth0.json',
      lines(
        { _id: { $oid: '5f' }, email: 'ann@mail.example', email_verified: true, passwordHash: BCRYPT, tenant: 't' },
        {
          user_id: 'auth0|60',
          email: 'ben@mail.example',
          nickname: 'Ben',
          picture: 'https://cdn.example/b.png',
          blocked: true,
        },
      ),
    )
    expect(await service.json(['user', 'import', file, '--convert', 'auth0'])).toMatchObject({ created: 2 })
    expect(await usersOf(service)).toMatchObject([
      { external_id: 'auth0|5f', username: 'ann@mail.example' },
      { external_id: 'auth0|60', nickname: 'Ben', disabled: true },
    ])
  })

  test("Firebase's export, without storing the project's key", async () => {
    const service = await createProcess()
    const parameters = `hash_config {
      algorithm: SCRYPT,
      base64_signer_key: jxspr8Ki0RYycVU8zykbdLGjFQ3McFUH0uiiTvC8pVMXAn210wjLNmdZJzxUECKbm0QsEmYUSDzZvpjeJ9WmXA==,
      base64_salt_separator: Bw==,
      rounds: 8,
      mem_cost: 14,
    }`
    const hash = 'lSrfV15cpx95/sZS2W9c9Kp6i/LVgQNDNC/qzrCnh1SAyZvqmZqAjTdn3aoItz+VHjoZilo78198JAdRuid5lQ=='
    const user = {
      localId: 'f1',
      email: 'ann@mail.example',
      passwordHash: hash,
      salt: '42xEC+ixf3L2lw==',
      createdAt: '1600000000000',
      providerUserInfo: [
        { providerId: 'password', rawId: 'ann@mail.example' },
        { providerId: 'google.com', rawId: 'g-1' },
      ],
    }
    const file = fileOf(service, 'firebase.json', JSON.stringify({ users: [user] }))
    const given = ['--convert', 'firebase', '--firebase-parameters', fileOf(service, 'parameters.txt', parameters)]
    expect(await service.json(['user', 'import', file, ...given])).toMatchObject({ created: 1 })
    expect(await service.json(['user', 'hashes'])).toMatchObject([{ kind: 'firebase-scrypt ln=14,r=8,p=1' }])
    expect(await service.json(['user', 'show', 'external_id:f1'])).toMatchObject({
      identities: [expect.objectContaining({ provider: 'google.com', subject: 'g-1' })],
    })
    expect((await service.run(['user', 'import', file, '--convert', 'firebase'])).exitCode).toBe(2)
  })
})

test.each([
  ['a file that is not there', ['nowhere.ndjson'], 'cannot read nowhere.ndjson: there is no such file'],
  ['a CSV file with too many cells', ['users.csv'], 'users.csv: record inconsistent columns (CSV, line 2)'],
  ['a JSON document without users', ['realm.json', '--convert', 'keycloak'], 'realm.json: it has no list of users'],
])('%s is said, and stores nothing', async (_, args, text) => {
  const service = await createProcess()
  fileOf(service, 'realm.json', '{}')
  fileOf(service, 'users.csv', 'username\nann,ben\n')
  const [file = '', ...rest] = args
  const given = file !== 'nowhere.ndjson' ? path.join(service.dataDir, file) : file
  const { exitCode: code, stderr } = await service.run(['user', 'import', given, ...rest])
  expect({ code, stderr }).toEqual({ code: 1, stderr: expect.stringContaining(text) })
  expect(stderr).not.toContain('new database')
})

test('a record that no call could carry is refused, and those after it are stored', async () => {
  const service = await createProcess()
  const name = fileOf(
    service,
    'users.ndjson',
    lines(
      'x'.repeat(300_000),
      { external_id: '2', nickname: 'a\0b' },
      `{"external_id":"3","nickname":"a\u2028b"}`,
      '{"external_id":"4\\ud800"}',
      {
        external_id: '5',
        created_at: '0000-01-01T00:00:00Z',
      },
    ),
  )
  const { exitCode, stdout, stderr } = await service.run(['user', 'import', name, '--json'])
  expect({ exitCode, ...JSON.parse(stdout) }).toMatchObject({ exitCode: 3, created: 1, refused: 4 })
  expect(stderr).toContain('line 1: the line is longer than 64 KiB')
  expect(stderr).toContain('line 2: nickname has a NUL character')
  expect(stderr).toContain('line 4: external_id has control characters')
  expect(stderr).toContain('line 5: created_at must be of the years 1 to 9999')
})

test.each(['users.ndjson', 'users.csv'])('an import of %s ends where it is not UTF-8', async (name) => {
  const service = await createProcess()
  const file = path.join(service.dataDir, name)
  writeFileSync(file, Buffer.from('external_id,nickname\n1,\xb0\xb2\n', 'latin1')) // GBK
  const { exitCode, stderr } = await service.run(['user', 'import', file])
  expect(exitCode).toBe(1)
  expect(stderr).toBe(`survey-auth: cannot read ${file}: it is not UTF-8\n`)
})
