// Checkpoints in their own thread: the log stays short, reads and writes go on meanwhile, and nothing is left behind.
import { once } from 'node:events'
import { existsSync, fdatasync, readFileSync, renameSync, statSync, writeFileSync, writeSync } from 'node:fs'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { Worker } from 'node:worker_threads'
import { describe, expect, it, onTestFinished, vi } from 'vitest'
import { Database, driverPath } from '../../services/storage/sqlite/driver.js'
import type { Flush } from '../../services/storage/sqlite/flushed-files.js'
import { GroupCommit } from '../../services/storage/sqlite/group-commit.js'
import { type Connection, openDatabase } from '../../services/storage/sqlite/open.js'
import { temporaryDirectory } from './temporary-directory.js'

const PAGES = 64
const PAGE_BYTES = 4096

function open(flush?: Flush, flushDatabase?: Flush, checkpointPages = PAGES) {
  const file = path.join(temporaryDirectory(), 'test.db')
  const db = openDatabase(file)
  db.exec('CREATE TABLE notes (id INTEGER PRIMARY KEY, text TEXT NOT NULL)')
  const insert = db.prepare('INSERT INTO notes (text) VALUES (?)')
  const writer = new GroupCommit(db, {
    checkpointPages,
    lockWaitMs: 60_000,
    beginWithinMs: 60_000,
    flush,
    flushDatabase,
  })
  const addPages = (count: number) => writer.submit(() => insert.run('x'.repeat(count * PAGE_BYTES)))
  const addPage = () => addPages(1)
  onTestFinished(() => {
    if (db.open) db.close()
  })
  return { file, db, writer, addPage, addPages }
}

type Opened = ReturnType<typeof open>

/** Makes commits of some two pages each. */
async function commit({ addPage }: Opened, times: number): Promise<void> {
  for (let i = 0; i < times; i++) {
    await addPage()
    await new Promise((resolve) => setTimeout(resolve, 1))
  }
}

/** Captures the warnings of this process. */
function warnings() {
  const warned = vi.spyOn(process, 'emitWarning').mockImplementation(() => undefined)
  onTestFinished(() => {
    warned.mockRestore()
  })
  return () => warned.mock.calls.map(([warning]) => String(warning))
}

const pagesInLog = (file: string) => statSync(`${file}-wal`).size / PAGE_BYTES
const logOf = (db: Connection) => db.prepare<[], { log: number }>('PRAGMA wal_checkpoint(NOOP)').get()?.log ?? 0
const rowsOf = (db: Connection) => db.prepare('SELECT count(*) FROM notes').pluck().get()

/** A connection that sees the database as it is now, for which the log is kept. */
function readerOf(file: string): Connection {
  const reader = new Database(file)
  reader.exec('BEGIN')
  rowsOf(reader)
  return reader
}

describe('checkpoints', () => {
  it.each([
    ['come one by one', 1],
    ['never pause', 40],
  ])('let the log begin anew, again and again, while writes %s', async (_, atOnce) => {
    const opened = open()
    let [written, restarts, before] = [0, 0, 0]
    while (restarts < 3) {
      await Promise.all(Array.from({ length: atOnce }, opened.addPage))
      written += atOnce
      const log = logOf(opened.db)
      if (log < before) restarts += 1
      before = log
    }
    expect(rowsOf(opened.db)).toBe(written)
    await opened.writer.close()
  })

  it('are not taken for writes of another process', async () => {
    const opened = open()
    const version = () => opened.db.pragma('data_version', { simple: true })
    const before = version()
    await commit(opened, 200)
    expect(statSync(opened.file).size).toBeGreaterThan(50 * PAGE_BYTES)
    expect(version()).toBe(before)
    await opened.writer.close()
  })

  it('wait for a reader that needs the log, and shorten it afterwards', async () => {
    const opened = open()
    const reader = readerOf(opened.file)
    expect(rowsOf(reader)).toBe(0)
    await commit(opened, 300)
    expect(rowsOf(reader)).toBe(0)
    expect(pagesInLog(opened.file)).toBeGreaterThan(300)
    reader.exec('COMMIT')
    reader.close()
    await commit(opened, 300)
    expect(logOf(opened.db)).toBeLessThan(6 * PAGES)
    expect(rowsOf(opened.db)).toBe(600)
    await opened.writer.close()
  })

  it('are left to another process while it makes one, and not asked for again and again', async () => {
    const pages = 1024
    const flushes: (() => void)[] = []
    let reader: Connection | undefined
    const keepingTheLog: Flush = (descriptor, done) => {
      reader ??= readerOf(opened.file)
      fdatasync(descriptor, done)
    }
    const opened = open(keepingTheLog, (_, done) => flushes.push(() => done(null)), pages)
    await opened.addPages(pages)
    await vi.waitFor(() => expect(flushes).toHaveLength(1), 20_000)
    await opened.addPages(pages) // more than is left to the writer

    const writing = new Database(opened.file)
    writing.exec('BEGIN IMMEDIATE')
    const other = new Worker(
      `const { workerData } = require('node:worker_threads')
      const db = new (require(workerData.driver))(workerData.file, { timeout: 60_000 })
      while (db.pragma('wal_checkpoint(FULL)')[0].busy); // waits for the lock of writers, with that of checkpoints
      db.close()`,
      { eval: true, workerData: { driver: driverPath, file: opened.file } },
    )
    const hasEnded = once(other, 'exit')
    await vi.waitFor(() => expect(opened.db.pragma('wal_checkpoint', { simple: true })).toBe(1), 20_000)

    flushes[0]?.()
    await vi.waitFor(() => expect(flushes).toHaveLength(2), 20_000)
    flushes[1]?.()
    await sleep(100)
    expect(flushes).toHaveLength(2)
    reader?.close()
    writing.close()
    await hasEnded
    await opened.addPage() // begins the log anew
    await opened.addPages(pages)
    await vi.waitFor(() => expect(flushes).toHaveLength(3), 20_000)
    flushes[2]?.()
    await opened.writer.close()
  })

  it('start again after one that failed', async () => {
    const warned = warnings()
    const opened = open()
    while (warned().length === 0) {
      await opened.addPage()
      opened.db.exec('BEGIN IMMEDIATE') // keeps checkpoints from finishing
      await sleep(5)
      opened.db.exec('ROLLBACK')
    }
    expect(warned()).toEqual([expect.stringContaining('a checkpoint of')])
    await commit(opened, 600)
    expect(pagesInLog(opened.file)).toBeLessThan(6 * PAGES)
    await opened.writer.close()
  })

  it('start again after one that could not open the file', async () => {
    const warned = warnings()
    const opened = open()
    renameSync(opened.file, `${opened.file}.moved`)
    while (warned().length === 0) await opened.addPage()
    renameSync(`${opened.file}.moved`, opened.file)
    expect(warned()).toEqual([expect.stringContaining('a checkpoint of')])
    await commit(opened, 600)
    expect(pagesInLog(opened.file)).toBeLessThan(6 * PAGES)
    expect(opened.db.pragma('wal_autocheckpoint', { simple: true }), 'SQLite shortened it').toBe(0)
    await opened.writer.close()
  })

  it('start again once a log that could not be flushed is whole again', async () => {
    const warned = warnings()
    let isFailing = false
    const opened = open((descriptor, done) => {
      if (isFailing) setImmediate(done, new Error('EIO'))
      else fdatasync(descriptor, done)
    })
    await opened.addPage()
    isFailing = true
    const doubtful = Promise.all(Array.from({ length: PAGES }, opened.addPage)) // by then the log is long enough
    await sleep(100)
    isFailing = false
    await doubtful
    expect(warned()).toEqual([expect.stringContaining('could not be flushed')])
    await commit(opened, 600)
    expect(pagesInLog(opened.file)).toBeLessThan(6 * PAGES)
    await opened.writer.close()
  })

  it.each([
    ['the service keeps running', false],
    ['the service is closed meanwhile', true],
  ])('copy again what a failed flush of the database has lost, when %s', async (_, isClosing) => {
    const warned = warnings()
    let disk: Buffer | undefined
    const opened = open(undefined, (descriptor, done) => {
      if (disk === undefined) return fdatasync(descriptor, done)
      writeSync(descriptor, disk, 0, disk.length, 0) // the kernel drops what it could not write, and reports it once
      disk = undefined
      setImmediate(done, new Error('EIO'))
    })
    await commit(opened, PAGES - 10)
    opened.db.pragma('wal_checkpoint(TRUNCATE)')
    disk = readFileSync(opened.file)
    const change = () => opened.writer.submit(() => opened.db.exec("UPDATE notes SET text = 'y' || text"))
    await change()
    const reader = readerOf(opened.file)
    expect(rowsOf(reader)).toBe(PAGES - 10) // the log is copied as far as it goes now
    const more = commit(opened, PAGES)
    await vi.waitFor(() => expect(warned()).toHaveLength(2), 20_000)
    expect(warned()).toEqual([expect.stringContaining('EIO'), expect.stringContaining('is being rewritten')])
    reader.close()
    await more
    if (!isClosing) {
      await commit(opened, 4 * PAGES)
      expect(pagesInLog(opened.file)).toBeLessThan(6 * PAGES)
    }
    await opened.writer.close()
    opened.db.close()
    const again = new Database(opened.file)
    const changed = again.prepare("SELECT count(*) FROM notes WHERE text LIKE 'yx%'").pluck().get()
    expect([changed, rowsOf(again)]).toEqual([PAGES - 10, (isClosing ? 2 : 6) * PAGES - 10])
    again.close()
  })

  it('end with the writer, and the last connection leaves no log behind', async () => {
    const opened = open()
    await commit(opened, 100)
    await opened.writer.close()
    opened.db.close()
    expect(existsSync(`${opened.file}-wal`)).toBe(false)
    expect(existsSync(`${opened.file}-shm`)).toBe(false)
    const again = new Database(opened.file)
    expect(rowsOf(again)).toBe(100)
    again.close()
  })

  it('do not run modules preloaded by NODE_OPTIONS, and end with the writer', async () => {
    const preloaded = path.join(temporaryDirectory(), 'preloaded.cjs')
    writeFileSync(preloaded, 'setInterval(() => undefined, 1_000)')
    vi.stubEnv('NODE_OPTIONS', `--require ${preloaded}`)
    onTestFinished(() => {
      vi.unstubAllEnvs()
    })
    const opened = open()
    await commit(opened, 100)
    await opened.writer.close()
    opened.db.close()
    expect(existsSync(`${opened.file}-wal`)).toBe(false)
  })

  it('run in the writer again once their thread has ended', async () => {
    process.once('worker', (worker) => void worker.terminate())
    const warned = warnings()
    const opened = open()
    await commit(opened, 150)
    await vi.waitFor(() => expect(warned()).toEqual([expect.stringContaining('inside commits again')]), 20_000)
    expect(opened.db.pragma('wal_autocheckpoint', { simple: true })).toBeGreaterThan(0)
    await commit(opened, 10)
    expect(rowsOf(opened.db)).toBe(160)
    await opened.writer.close()
  })
})
