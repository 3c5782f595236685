import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdirSync, readdirSync, rmSync, statSync, symlinkSync } from 'node:fs'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { beforeEach, expect, onTestFinished, test, vi } from 'vitest'
import { driverPath } from '../../services/sqlite/driver.js'
import { LeaseLock } from '../../services/sqlite/lease-lock.js'
import { openDatabase } from '../../services/sqlite/open.js'
import { temporaryDirectory } from './temporary-directory.js'

const LEASE_MS = 100

let file: string
beforeEach(() => {
  file = path.join(temporaryDirectory(), 'entries.db')
})

function locking(of = file) {
  const db = openDatabase(of)
  const lock = new LeaseLock(db, LEASE_MS, () => undefined)
  onTestFinished(() => {
    lock.close()
    db.close()
  })
  return lock
}

/** Another process that has the lock. */
async function lockElsewhere() {
  const script = `const db = new (require(process.argv[1]))(process.argv[2]); db.exec('BEGIN EXCLUSIVE')
    console.log('has it'); setInterval(() => {}, 1000)`
  const child = spawn(process.execPath, ['-e', script, driverPath, `${file}-lease`], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  onTestFinished(() => void child.kill('SIGKILL'))
  await once(child.stdout, 'data')
  return async () => {
    child.kill('SIGKILL')
    await once(child, 'exit')
  }
}

test('before any lease was granted, nobody waits for one, and no file is made', () => {
  expect(locking().strangersMs()).toBe(0)
  expect(existsSync(`${file}-lease`)).toBe(false)
})

test('only one process may grant leases; the lock file is for its owner alone', () => {
  const lock = locking()
  expect([lock.take(), lock.take()]).toEqual([true, true])
  expect(statSync(`${file}-lease`).mode & 0o777).toBe(0o600)
  expect(locking().take()).toBe(false)
})

test('another writer waits as long as a lease lasts; the granter does not, once earlier leases have ended', async () => {
  const [granter, writer] = [locking(), locking()]
  granter.take()
  expect(granter.strangersMs()).toBeGreaterThan(0)
  await sleep(LEASE_MS + 5)
  expect([granter.strangersMs(), writer.strangersMs()]).toEqual([0, LEASE_MS])
})

test('a closed lock is released, and not taken again', () => {
  const [first, second] = [locking(), locking()]
  first.take()
  first.close()
  expect([first.take(), second.take(), second.strangersMs() > 0]).toEqual([false, true, true])
})

test('a database opened by another name has the same lock file', () => {
  const [lock, byLink] = [locking(), `${file}.link`]
  symlinkSync(file, byLink)
  expect([lock.take(), locking(byLink).take(), existsSync(`${byLink}-lease`)]).toEqual([true, false, false])
})

test('a lock file that was deleted is locked again, and its former holder waits as other processes do', async () => {
  const [first, second] = [locking(), locking()]
  first.take()
  await sleep(LEASE_MS + 5)
  rmSync(`${file}-lease`)
  expect([second.take(), first.take(), first.strangersMs()]).toEqual([true, false, LEASE_MS])
})

test('a lock file that can no longer be examined counts as not held, and makes no write fail', () => {
  const lock = locking()
  lock.take()
  rmSync(`${file}-lease`)
  symlinkSync(`${file}-lease`, `${file}-lease`)
  const warned = vi.spyOn(process, 'emitWarning').mockReturnValue()
  onTestFinished(() => warned.mockRestore())
  expect([lock.strangersMs(), lock.take()]).toEqual([LEASE_MS, false])
})

test('no other file is left beside the lock file', () => {
  locking().take()
  expect(readdirSync(path.dirname(file)).filter((name) => name.startsWith('entries.db-lease'))).toEqual([
    'entries.db-lease',
  ])
})

test('the lock of a killed process is free, and later writes wait for its leases', async () => {
  const kill = await lockElsewhere()
  const lock = locking()
  expect([lock.take(), lock.strangersMs()]).toEqual([false, LEASE_MS])
  await kill()
  const left = lock.strangersMs()
  expect(left).toBeGreaterThan(LEASE_MS / 2)
  expect(lock.take()).toBe(true)
  await sleep(left + 5)
  expect(lock.strangersMs()).toBe(0)
})

test('a database in memory may grant leases, and waits for no other process', () => {
  const lock = locking(':memory:')
  expect([lock.take(), lock.strangersMs()]).toEqual([true, 0])
})

test('a lock file that cannot be locked is warned about once, and no lease is granted', () => {
  const warned = vi.spyOn(process, 'emitWarning').mockReturnValue()
  onTestFinished(() => warned.mockRestore())
  const lock = locking()
  mkdirSync(`${file}-lease`)
  expect([lock.take(), lock.take(), lock.strangersMs()]).toEqual([false, false, LEASE_MS])
  expect(warned).toHaveBeenCalledTimes(1)
  expect(String(warned.mock.calls[0])).toContain('entries.db-lease cannot be locked')
})
