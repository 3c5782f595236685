import { once } from 'node:events'
import { chmodSync, mkdirSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { Worker } from 'node:worker_threads'
import { describe, expect, onTestFinished, test } from 'vitest'
import { Database, driverPath } from '../../services/storage/sqlite/driver.js'
import { fileProbe, openDatabase, toStoreError } from '../../services/storage/sqlite/open.js'
import { StoreUnavailable } from '../../services/storage/store-unavailable.js'
import { temporaryDirectory } from './temporary-directory.js'

const mode = (path: string) => (statSync(path).mode & 0o777).toString(8)

describe('opening a SQLite file', () => {
  test('commits are flushed before they are acknowledged: WAL and synchronous=FULL, read back', () => {
    const db = openDatabase(join(temporaryDirectory(), 'a.db'))
    expect(db.pragma('journal_mode', { simple: true })).toBe('wal')
    expect(db.pragma('synchronous', { simple: true })).toBe(2)
    expect(db.pragma('foreign_keys', { simple: true })).toBe(1)
    expect(db.pragma('busy_timeout', { simple: true })).toBe(2000)
    db.close()
  })

  test('file, -wal and -shm are readable by their owner only, whatever the umask', () => {
    const umask = process.umask(0)
    onTestFinished(() => void process.umask(umask))
    const file = join(temporaryDirectory(), 'new', 'deep', 'a.db')
    const db = openDatabase(file)
    db.exec('CREATE TABLE t (x)')
    expect([file, `${file}-wal`, `${file}-shm`].map(mode)).toEqual(['600', '600', '600'])
    expect(mode(dirname(file))).toBe('700')
    db.close()
  })

  test('a file that others may read is made private, and its directory is left alone', () => {
    const directory = join(temporaryDirectory(), 'shared')
    mkdirSync(directory)
    chmodSync(directory, 0o755)
    const file = join(directory, 'a.db')
    writeFileSync(file, '')
    chmodSync(file, 0o644)
    openDatabase(file).close()
    expect(mode(file)).toBe('600')
    expect(mode(directory)).toBe('755')
  })

  test('a log left by an earlier run is made private as well', () => {
    const file = join(temporaryDirectory(), 'a.db')
    const earlier = openDatabase(file)
    earlier.exec('CREATE TABLE t (x)')
    const left = [`${file}-wal`, `${file}-shm`]
    for (const path of left) chmodSync(path, 0o644)
    const db = openDatabase(file)
    expect(left.map(mode)).toEqual(['600', '600'])
    db.close()
    earlier.close()
  })

  test('a file that is not a database is refused', () => {
    const file = join(temporaryDirectory(), 'a.db')
    writeFileSync(file, 'this is a text of more than a hundred characters and certainly no database '.repeat(20))
    expect(() => openDatabase(file)).toThrow('file is not a database')
  })

  test('a file that another process keeps locked is unavailable', () => {
    const file = join(temporaryDirectory(), 'a.db')
    const other = new Database(file)
    other.exec('CREATE TABLE t (x); BEGIN EXCLUSIVE')
    expect(() => openDatabase(file)).toThrow(StoreUnavailable)
    other.exec('ROLLBACK')
    other.close()
    openDatabase(file).close()
  }, 30_000)
})

test('a file that another process locks for a moment is opened once it is free', async () => {
  const file = join(temporaryDirectory(), 'a.db')
  const source = `
    const { parentPort, workerData } = require('node:worker_threads')
    const db = new (require(workerData.driver))(workerData.file)
    db.exec('CREATE TABLE t (x); BEGIN EXCLUSIVE')
    parentPort.postMessage('locked')
    setTimeout(() => db.exec('COMMIT'), 100)`
  const other = new Worker(source, { eval: true, workerData: { driver: driverPath, file } })
  await once(other, 'message')
  openDatabase(file).close()
  await other.terminate()
})

test('a file that the system cannot look up is unavailable', () => {
  const file = join(temporaryDirectory(), 'a.db')
  const db = openDatabase(file)
  const probe = fileProbe(db)
  probe()
  rmSync(file)
  symlinkSync(file, file) // ELOOP, for root as well
  expect(probe).toThrow(StoreUnavailable)
  db.close()
})

describe('failures of the driver', () => {
  const unavailable = ['BUSY', 'BUSY_SNAPSHOT', 'LOCKED', 'FULL', 'IOERR', 'IOERR_FSYNC', 'READONLY', 'CANTOPEN']
  test.each(unavailable)('SQLITE_%s means that the database is unavailable', (code) => {
    const error = new Database.SqliteError('text', `SQLITE_${code}`)
    const failure = toStoreError(error, 'token.db')
    expect(failure).toBeInstanceOf(StoreUnavailable)
    const reason = code === 'FULL' ? 'the disk of token.db is full: free some space on it' : 'text'
    expect(failure).toMatchObject({ outcomeUnknown: false, cause: { message: `${reason} (SQLITE_${code})` } })
  })

  test.skipIf(process.platform !== 'linux')('an I/O error on a disk without space is reported as a full disk', () => {
    const error = new Database.SqliteError('disk I/O error', 'SQLITE_IOERR_SHMSIZE')
    const message = 'the disk of /proc/token.db is full: free some space on it (SQLITE_IOERR_SHMSIZE)'
    expect(toStoreError(error, '/proc/token.db')).toMatchObject({ cause: { message } })
  })

  const defects = ['ERROR', 'CONSTRAINT_UNIQUE', 'CORRUPT', 'NOTADB', 'MISMATCH']
  test.each(defects)('SQLITE_%s is a defect and is passed on unchanged', (code) => {
    const error = new Database.SqliteError('text', `SQLITE_${code}`)
    expect(toStoreError(error, 'token.db')).toBe(error)
  })

  test('an error of another class with such a code is not taken for the driver’s', () => {
    const error = Object.assign(new Error('text'), { code: 'SQLITE_BUSY' })
    expect(toStoreError(error, 'token.db')).toBe(error)
  })
})
