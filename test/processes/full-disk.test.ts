// Disks that fail under a running service. A full one is made with a limit on the size of its files (RLIMIT_FSIZE), which
// Linux's `prlimit` sets and lifts from outside; one that cannot flush, with strace, which makes fdatasync fail.
import { execFileSync, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { statSync } from 'node:fs'
import path from 'node:path'
import { expect, test } from 'vitest'
import { grantAccessOn } from '../harness/access.js'
import { send } from '../harness/http.js'
import { type ServiceProcess, startProcess } from '../harness/process.js'
import { PROGRAM } from '../harness/spawn.js'
import { withQuery } from '../harness/verbs.js'
import { temporaryDirectory } from '../store/temporary-directory.js'

/** Whether strace is installed and may attach to a process that is not its child: then only `timeout` ends it, with 124. */
const canAttach = spawnSync('sh', ['-c', 'sleep 1 & timeout 0.3 strace -o /dev/null -p $!']).status === 124
const hasPrlimit = spawnSync('prlimit', ['--version']).status === 0
const canMount = spawnSync('unshare', ['-rm', 'mount', '-t', 'tmpfs', 'tmpfs', '/mnt']).status === 0

interface Answer {
  readonly status: number
  readonly type: string
  readonly data: Readonly<Record<string, unknown>>
  readonly retryAfter: string | undefined
}

async function get(service: ServiceProcess, target: string, query: Record<string, string>): Promise<Answer> {
  const { status, headers, text } = await send(service.url, withQuery(target, query))
  const { error, data } = JSON.parse(text) as { error: { type: string }; data: Record<string, unknown> }
  return { status, type: error.type, data, retryAfter: headers.get('retry-after') }
}

/** A service with one grant and one survey, and what the app asks with it. */
async function startWithAccess() {
  const service = await startProcess()
  const { appid, accessToken, refreshToken, openid } = await grantAccessOn(service, ['lunch'])
  return {
    service,
    accessToken,
    refresh: () =>
      get(service, '/api/oauth2/refresh_token', { appid, refresh_token: refreshToken, grant_type: 'refresh_token' }),
    user: (token: string) => get(service, '/api/oauth2/user', { appid, access_token: token, openid }),
    surveys: () => get(service, '/api/surveys', { appid, access_token: accessToken, openid }),
  }
}

/** Limits the size of the service's files; undefined lifts the limit. */
function limitFiles(service: ServiceProcess, bytes: number | undefined): void {
  execFileSync('prlimit', ['--pid', String(service.pid), `--fsize=${bytes ?? 'unlimited'}:unlimited`])
}

/** Makes those flushes of the service fail that `when` selects, in strace's syntax, until the returned function is called. */
async function failFlushes(service: ServiceProcess, when: string): Promise<() => Promise<unknown>> {
  const inject = `inject=fdatasync:error=EIO:when=${when}`
  const args = ['-f', '-p', String(service.pid), '-o', '/dev/null', '-e', 'trace=fdatasync', '-e', inject]
  const strace = spawn('strace', args, { stdio: ['ignore', 'ignore', 'pipe'] })
  await once(strace.stderr, 'data') // "attached"
  return async () => {
    strace.kill('SIGINT')
    await once(strace, 'exit')
  }
}

test.skipIf(!hasPrlimit)(
  'while the disk is full, writes answer 503 and reads go on, and the service recovers without a restart',
  {
    timeout: 120_000,
  },
  async () => {
    const { service, accessToken, refresh, user, surveys } = await startWithAccess()

    limitFiles(service, statSync(path.join(service.dataDir, 'token.db-wal')).size)
    for (let i = 0; i < 5; i += 1) {
      const refused = await refresh()
      expect(refused).toMatchObject({ status: 503, type: 'remote_server_error' })
      expect(Number(refused.retryAfter)).toBeGreaterThan(0)
      expect(await user(accessToken)).toMatchObject({ status: 200 })
      expect((await surveys()).data).toMatchObject({ total: 1 })
    }
    limitFiles(service, undefined)
    const refreshed = await refresh()
    expect(refreshed.status).toBe(200)
    expect(await user(String(refreshed.data.access_token))).toMatchObject({ status: 200 })
    expect(await user(accessToken)).toMatchObject({ status: 200 })
    expect(await service.stop()).toBe(0)
  },
)

test.skipIf(!hasPrlimit)('why writes fail is logged once, and told to the operator’s commands', async () => {
  const { service, refresh } = await startWithAccess()
  limitFiles(service, statSync(path.join(service.dataDir, 'token.db-wal')).size)
  for (let i = 0; i < 3; i += 1) expect(await refresh()).toMatchObject({ status: 503 })
  const { exitCode, stderr } = await service.cli(['user', 'disable', 'ana'])
  expect(exitCode).toBe(69)
  expect(stderr).toContain('the database is unavailable: disk I/O error (SQLITE_IOERR_WRITE)\n')
  limitFiles(service, undefined)
  expect(await service.stop()).toBe(0)
  const told = service.output.match(/"level":40,.*the token database is unavailable: .*/g)
  expect(told).toEqual([expect.stringContaining('disk I/O error (SQLITE_IOERR_WRITE) (1 since the last line on this)')])
})

test.skipIf(!canMount)('a start on a full disk says which disk is full, and what to do', () => {
  const directory = temporaryDirectory()
  const script = `mount -t tmpfs -o size=1m tmpfs "$DATA_DIR" && "$0" "$1" migrate && rm "$DATA_DIR"/*-shm
    cat /dev/zero > "$DATA_DIR"/full; exec "$0" "$1" serve all`
  const { status, stderr } = spawnSync('unshare', ['-rm', 'sh', '-c', script, process.execPath, PROGRAM], {
    env: { PATH: process.env.PATH, DATA_DIR: directory },
    encoding: 'utf8',
  })
  const reason = `the disk of ${directory}/token.db is full: free some space on it (SQLITE_IOERR_SHMSIZE)`
  expect([status, stderr.split('\n').at(-2)]).toEqual([69, `survey-auth: the database is unavailable: ${reason}`])
})

test.skipIf(!canAttach)(
  'a flush that fails once is made good; while all fail, writes answer 503 and reads go on; the service recovers',
  { timeout: 120_000 },
  async () => {
    const { service, accessToken, refresh, user } = await startWithAccess()

    const firstOnes = await failFlushes(service, '1')
    const delayed = await refresh()
    expect(delayed.status).toBe(200)
    await firstOnes()
    expect(service.output).toContain('could not be flushed')

    const always = await failFlushes(service, '1+')
    for (let i = 0; i < 2; i += 1) {
      const refused = await refresh()
      expect(refused).toMatchObject({ status: 503, type: 'remote_server_error' })
      expect(Number(refused.retryAfter)).toBeGreaterThan(0)
      expect(await user(String(delayed.data.access_token))).toMatchObject({ status: 200 })
    }
    await always()
    await expect.poll(async () => (await refresh()).status, { timeout: 30_000 }).toBe(200)
    expect(await user(accessToken)).toMatchObject({ status: 200 })
    expect(await service.stop()).toBe(0)
  },
)
