import { fdatasync, fstatSync, statSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Statement } from 'better-sqlite3'
import { afterEach, beforeEach, describe, expect, onTestFinished, test } from 'vitest'
import type { Until } from '../../services/storage/cause.js'
import { Database } from '../../services/storage/sqlite/driver.js'
import type { Flush } from '../../services/storage/sqlite/flushed-files.js'
import { GroupCommit } from '../../services/storage/sqlite/group-commit.js'
import { type Connection, openDatabase } from '../../services/storage/sqlite/open.js'
import { StoreUnavailable } from '../../services/storage/store-unavailable.js'
import { temporaryDirectory } from './temporary-directory.js'

let file: string
let db: Connection
let executed: string[]
let insert: Statement<[number]>
let commits: GroupCommit

beforeEach(() => {
  file = join(temporaryDirectory(), 'entries.db')
  openDatabase(file).close()
  executed = []
  db = new Database(file, { verbose: (sql) => executed.push(String(sql)) })
  db.exec(`CREATE TABLE entries (id INTEGER PRIMARY KEY);
    CREATE TABLE lines (entry_id INTEGER NOT NULL REFERENCES entries DEFERRABLE INITIALLY DEFERRED);
    CREATE TABLE blobs (bytes BLOB NOT NULL)`)
  insert = db.prepare('INSERT INTO entries (id) VALUES (?)')
  commits = new GroupCommit(db, { maxUnanswered: 50, lockWaitMs: 200 })
})
afterEach(() => db.close())

const add = (id: number, to = commits, until?: Until) =>
  to.submit(() => {
    insert.run(id)
    return id
  }, until)
const count = (sql: string) => executed.filter((each) => each === sql).length
const stored = (connection = db) => connection.prepare<[], number>('SELECT id FROM entries ORDER BY id').pluck().all()

/** The connection, with its ROLLBACK replaced. */
function rollingBack(replaced: (rollBack: () => void) => void): Connection {
  return new Proxy(db, {
    get(target, key) {
      const value: unknown = Reflect.get(target, key, target)
      if (typeof value !== 'function') return value
      return (...args: unknown[]) => {
        const run = () => value.apply(target, args) as unknown
        return args[0] === 'ROLLBACK' ? replaced(run) : run()
      }
    },
  })
}

/** The outcome of every promise: its value or the error it was rejected with. */
async function outcomes(promises: readonly Promise<unknown>[]): Promise<unknown[]> {
  const settled = await Promise.allSettled(promises)
  return settled.map((each) => (each.status === 'fulfilled' ? each.value : each.reason))
}

describe('group commit', () => {
  test('a write whose deadline passes before its turn in the group is refused, also when the group runs again', async () => {
    const busy = (ms: number) => {
      const end = performance.now() + ms
      while (performance.now() < end);
    }
    const soon = () => ({ dueAt: performance.now() + 30 })
    const long = commits.submit(() => busy(60))
    const late = outcomes([add(1, commits, soon()), add(2)])
    await long
    expect(await late).toEqual([expect.any(StoreUnavailable), 2])

    const again = outcomes([
      add(3, commits, soon()),
      commits.submit(() => {
        busy(60)
        throw new Error('it fails')
      }),
      add(4),
    ])
    expect(await again).toEqual([expect.any(StoreUnavailable), new Error('it fails'), 4])
    expect(stored()).toEqual([2, 4])
  })

  test('writes of one turn share one transaction, later ones have their own', async () => {
    await Promise.all([1, 2, 3].map((id) => add(id)))
    expect(count('COMMIT')).toBe(1)
    await add(4)
    expect(count('COMMIT')).toBe(2)
    expect(stored()).toEqual([1, 2, 3, 4])
  })

  test('writes submitted in the turn after that of an earlier write share its transaction', async () => {
    const first = add(1)
    await new Promise((resolve) => setImmediate(resolve))
    await Promise.all([first, add(2), add(3)])
    expect(count('COMMIT')).toBe(1)
  })

  test('each write succeeds or fails alone', async () => {
    const [one, two, three, again] = await outcomes([
      add(1),
      commits.submit(() => {
        insert.run(2)
        throw new Error('changed my mind')
      }),
      add(3),
      add(1),
    ])
    expect([one, three]).toEqual([1, 3])
    expect(two).toEqual(new Error('changed my mind'))
    expect(again).toMatchObject({ code: 'SQLITE_CONSTRAINT_PRIMARYKEY' })
    expect(stored()).toEqual([1, 3])
    expect(count('COMMIT'), 'each in a transaction of its own').toBe(2)
    await Promise.all([add(4), add(5)])
    expect(count('COMMIT'), 'those that follow share one').toBe(3)
  })

  test('a result is delivered after its commit', async () => {
    const reader = new Database(file, { readonly: true })
    const seen = await Promise.all([1, 2].map((id) => add(id).then(() => stored(reader))))
    expect(seen).toEqual([
      [1, 2],
      [1, 2],
    ])
    reader.close()
  })

  test('when the commit fails, nothing of the group happened and all callers are told so', async () => {
    const breakTheCommit = () => db.exec('INSERT INTO lines (entry_id) VALUES (99)') // a foreign key that is checked at COMMIT
    const results = await outcomes([add(1), commits.submit(breakTheCommit)])
    for (const result of results) expect(result).toBeInstanceOf(StoreUnavailable)
    expect(db.inTransaction).toBe(false)
    expect(stored()).toEqual([])
    expect(await add(2)).toBe(2)
  })

  test('when the rollback fails too, all callers are told so, and it is done before the next write', async () => {
    let failures = 0
    const failing = rollingBack((rollBack) => {
      if (failures++ === 0) throw new Error('no memory')
      rollBack()
    })
    const writer = new GroupCommit(failing, { lockWaitMs: 200 })
    const dangling = writer.submit(() => {
      db.prepare('INSERT INTO lines (entry_id) VALUES (7)').run() // no such entry, which fails the COMMIT
    })
    await expect(dangling).rejects.toThrow(StoreUnavailable)
    await add(1, writer).catch(() => undefined) // finds the previous transaction still open
    await add(2, writer)
    expect(failures).toBeGreaterThan(1)
    expect(stored()).toContain(2)
    expect(db.prepare('SELECT count(*) FROM lines').pluck().get()).toBe(0)
    await writer.close()
  })

  test('a lock that another process takes before a group runs again delays the group', async () => {
    const other = new Database(file)
    let isTaken = false
    const losing = rollingBack((rollBack) => {
      rollBack()
      if (isTaken) return
      isTaken = true
      other.exec('BEGIN IMMEDIATE')
      setTimeout(() => other.close(), 50)
    })
    const writer = new GroupCommit(losing, { lockWaitMs: 60_000, beginWithinMs: 60_000 })
    const failing = writer.submit(() => {
      throw new Error('it fails')
    })
    expect(await outcomes([failing, add(1, writer), add(2, writer)])).toEqual([new Error('it fails'), 1, 2])
    expect(isTaken).toBe(true)
    expect(stored()).toEqual([1, 2])
    await writer.close()
  })

  test('a short lock of another process delays writes, but neither reads nor timers', async () => {
    const other = new Database(file)
    other.exec('BEGIN IMMEDIATE')
    const patient = new GroupCommit(db, { lockWaitMs: 20_000 })
    const written = add(1, patient)
    let isWritten = false
    written.then(
      () => {
        isWritten = true
      },
      () => undefined,
    )
    const before = performance.now()
    for (let turn = 0; turn < 5; turn++) {
      await sleep(5)
      expect(stored()).toEqual([])
    }
    expect(performance.now() - before).toBeLessThan(2000) // how long one wait inside the driver would take
    expect(isWritten).toBe(false)
    other.exec('COMMIT')
    expect(await written).toBe(1)
    other.close()
  })

  test('every lock of another process is waited for as long as the first', async () => {
    const other = new Database(file)
    const patient = new GroupCommit(db, { lockWaitMs: 2_000 })
    for (const id of [1, 2]) {
      other.exec('BEGIN IMMEDIATE')
      const written = add(id, patient)
      await sleep(20)
      other.exec('COMMIT')
      expect(await written).toBe(id)
      if (id === 1) await sleep(2_100)
    }
    other.close()
  })

  test('a lock that is kept makes writes unavailable until it is released', async () => {
    const other = new Database(file)
    other.exec('BEGIN IMMEDIATE')
    const results = await outcomes([add(1), add(2)])
    for (const result of results) expect(result).toMatchObject({ outcomeUnknown: false })
    for (const result of results) expect(result).toBeInstanceOf(StoreUnavailable)
    other.exec('ROLLBACK')
    other.close()
    expect(await add(3)).toBe(3)
    expect(stored()).toEqual([3])
  })

  test('a full disk makes writes unavailable while reads go on, until there is space again', async () => {
    await add(1)
    const pages = Number(db.pragma('page_count', { simple: true }))
    db.pragma(`max_page_count = ${pages + 1}`)
    const addMegabyte = () => commits.submit(() => db.exec('INSERT INTO blobs (bytes) VALUES (zeroblob(1000000))'))
    const [full] = await outcomes([addMegabyte()])
    expect(full).toBeInstanceOf(StoreUnavailable)
    expect(stored()).toEqual([1])
    db.pragma('max_page_count = 1000000')
    await addMegabyte()
  })

  test('writes beyond the bound of the queue are refused', async () => {
    const results = await outcomes(Array.from({ length: 60 }, (_, id) => add(id)))
    expect(results.filter((result) => result instanceof StoreUnavailable)).toHaveLength(10)
    expect(stored()).toHaveLength(50)
  })

  test('a long queue is written in several transactions, in order', async () => {
    const many = new GroupCommit(db)
    const done: unknown[] = []
    await Promise.all(Array.from({ length: 600 }, (_, id) => add(id, many).then((each) => done.push(each))))
    expect(count('COMMIT')).toBe(3)
    expect(done).toEqual(Array.from({ length: 600 }, (_, id) => id))
  })

  test('closing finishes the writes that were submitted and refuses later ones', async () => {
    const written = add(1)
    const closed = commits.close()
    await expect(add(2)).rejects.toBeInstanceOf(StoreUnavailable)
    await Promise.all([closed, commits.close()])
    expect(await written).toBe(1)
    expect(stored()).toEqual([1])
  })

  test('closing finishes all groups of the writes that were submitted', async () => {
    const many = new GroupCommit(db)
    let written = 0
    for (let id = 0; id < 257; id++) {
      void add(id, many).then(() => {
        written += 1
      })
    }
    await many.close()
    expect(written).toBe(257)
  })
})

describe('the flush of the log', () => {
  type Done = Parameters<Flush>[1]
  /** Callbacks of the flushes that have not ended yet. */
  let waiting: Done[]
  let flushed: GroupCommit

  const flushing = (lockWaitMs: number) =>
    new GroupCommit(db, {
      maxUnanswered: 50,
      lockWaitMs,
      flush: (_, done) => waiting.push(done),
    })

  beforeEach(() => {
    waiting = []
    flushed = flushing(200)
  })

  const end = (error: Error | null = null) => waiting.shift()?.(error)
  /** Submits a write and lets its group commit. */
  async function committed(id: number): Promise<{ readonly outcome: Promise<unknown>; isAnswered: boolean }> {
    const write = { outcome: outcomes([add(id, flushed)]).then(([outcome]) => outcome), isAnswered: false }
    void write.outcome.then(() => {
      write.isAnswered = true
    })
    while (!stored().includes(id)) await sleep(1)
    return write
  }

  test('is awaited before any caller is answered, while reads go on; writes that come meanwhile share the next group', async () => {
    const sizes: number[] = []
    const writer = new GroupCommit(db, {
      onCommit: (writes) => sizes.push(writes),
      flush: (_, done) => waiting.push(done),
    })
    let isAnswered = false
    const first = add(1, writer).finally(() => {
      isAnswered = true
    })
    await asked(1)
    const others = [2, 3, 4].map((id) => add(id, writer))
    await sleep(20)
    expect(stored()).toEqual([1])
    expect(isAnswered).toBe(false)
    end()
    await first
    await asked(1)
    end()
    await Promise.all(others)
    expect(stored()).toEqual([1, 2, 3, 4])
    expect(sizes).toEqual([1, 3])
    await writer.close()
  })

  test('makes waiting writes fail while it takes too long, and they never happen', async () => {
    const writer = new GroupCommit(db, { beginWithinMs: 2_000, flush: (_, done) => waiting.push(done) })
    const first = add(1, writer)
    await asked(1)
    const late = await outcomes([add(2, writer), add(3, writer)])
    for (const outcome of late) expect(outcome).toMatchObject({ outcomeUnknown: false })
    const inTime = add(4, writer)
    end()
    expect(await first).toBe(1)
    await asked(1)
    end()
    expect(await inTime).toBe(4)
    expect(stored()).toEqual([1, 4])
    await writer.close()
  })

  test('makes a write fail whose deadline passes meanwhile, but none of the others', async () => {
    const writer = new GroupCommit(db, { beginWithinMs: 60_000, flush: (_, done) => waiting.push(done) })
    const first = add(1, writer)
    await asked(1)
    const before = add(2, writer)
    const late = outcomes([add(3, writer, { dueAt: performance.now() + 20 })])
    const after = add(4, writer, { dueAt: performance.now() + 60_000 })
    await sleep(30)
    end()
    for (const outcome of await late) expect(outcome).toMatchObject({ outcomeUnknown: false })
    await asked(1)
    end()
    expect(await Promise.all([first, before, after])).toEqual([1, 2, 4])
    expect(stored()).toEqual([1, 2, 4])
    await writer.close()
  })

  test('makes a write fail whose caller goes away meanwhile', async () => {
    const writer = new GroupCommit(db, { beginWithinMs: 60_000, flush: (_, done) => waiting.push(done) })
    const aborter = new AbortController()
    const first = add(1, writer)
    await asked(1)
    const [gone, there] = [new AbortController(), aborter].map(({ signal }, at) =>
      outcomes([add(2 + at, writer, { dueAt: Number.POSITIVE_INFINITY, signal })]),
    )
    aborter.abort()
    end()
    await first
    await asked(1)
    end()
    expect(await gone).toEqual([2])
    expect(await there).toEqual([expect.objectContaining({ outcomeUnknown: false })])
    expect(stored()).toEqual([1, 2])
    await writer.close()
  })

  const writtenAt = () => statSync(`${file}-wal`, { bigint: true }).mtimeNs
  /** Ends every flush from now on with `error`. */
  function ending(error: Error | null): () => void {
    const interval = setInterval(() => end(error), 5)
    onTestFinished(() => clearInterval(interval))
    return () => clearInterval(interval)
  }
  const asked = async (flushes: number) => {
    while (waiting.length < flushes) await sleep(1)
  }

  test('that fails once is made good: the log is rewritten, flushed and restarted, and the writes are acknowledged', async () => {
    flushed = flushing(60_000)
    const doubtful = await committed(1)
    const before = writtenAt()
    await sleep(20)
    end(new Error('EIO'))
    const later = add(3, flushed)
    await asked(1)
    expect(writtenAt(), 'its bytes were dirty once more').toBeGreaterThan(before)
    await sleep(20)
    expect([doubtful.isAnswered, stored()]).toEqual([false, [1]])
    end()
    await asked(1)
    expect(statSync(`${file}-wal`).size).toBe(0)
    expect(doubtful.isAnswered).toBe(false)
    end()
    expect(await doubtful.outcome).toBe(1)
    await asked(1)
    end()
    expect(await later).toBe(3)
  })

  test('is made good only when the database has been flushed too, into which the log may have been copied', async () => {
    const steps: string[] = []
    let failures = 1
    const fail = (done: Done) => done(failures-- > 0 ? new Error('EIO') : null)
    const repaired = new GroupCommit(db, {
      maxUnanswered: 50,
      lockWaitMs: 60_000,
      flush: (_, done) => {
        steps.push('log')
        if (steps.length === 1) done(new Error('EIO'))
        else done(null)
      },
      flushDatabase: (_, done) => {
        steps.push('database')
        fail(done)
      },
    })
    expect(await add(1, repaired)).toBe(1)
    expect(steps.slice(0, 5), 'a flush that failed, an attempt that failed, and one that did not').toEqual([
      'log',
      'log',
      'database',
      'log',
      'database',
    ])
    await repaired.close()
  })

  test('makes writes unavailable while it fails, and reads go on; afterwards writes succeed again', async () => {
    const doubtful = await committed(1)
    const stop = ending(new Error('EIO'))
    expect(await doubtful.outcome).toMatchObject({ outcomeUnknown: true })
    const [refused] = await outcomes([add(2, flushed)])
    expect(refused).toBeInstanceOf(StoreUnavailable)
    expect(refused).toMatchObject({ outcomeUnknown: false })
    expect(stored()).toEqual([1])
    stop()
    ending(null)
    while ((await outcomes([add(3, flushed)]))[0] !== 3) await sleep(1)
    expect(stored()).toEqual([1, 3])
  })

  test('lets no other process write behind what may be lost', async () => {
    const doubtful = await committed(1)
    const other = new Database(file, { timeout: 0 })
    const insert = other.prepare('INSERT INTO entries (id) VALUES (9)')
    end(new Error('EIO'))
    await asked(1)
    expect(() => insert.run()).toThrow('locked')
    end(new Error('EIO'))
    await sleep(20)
    expect(() => insert.run(), 'between two tries').toThrow('locked')
    ending(null)
    expect(await doubtful.outcome).toMatchObject({ outcomeUnknown: true })
    while ((await outcomes([add(2, flushed)]))[0] !== 2) await sleep(1)
    insert.run()
    other.close()
    expect(stored()).toEqual([1, 2, 9])
  })

  test('waits for a long read before it completes a repair', async () => {
    flushed = flushing(60_000)
    const doubtful = await committed(1)
    const other = new Database(file)
    other.exec('BEGIN')
    expect(stored(other)).toEqual([1])
    end(new Error('EIO'))
    await asked(1)
    end()
    await sleep(50)
    expect(waiting, 'what is whole is not flushed again').toEqual([])
    other.close()
    await asked(1)
    end()
    expect(await doubtful.outcome).toBe(1)
  })

  test('that hangs leaves no write waiting for ever, and does not keep a store from closing', async () => {
    const doubtful = await committed(1)
    end(new Error('EIO'))
    await asked(1)
    expect(await doubtful.outcome).toMatchObject({ outcomeUnknown: true })
    expect(db.pragma('busy_timeout', { simple: true })).toBe(2000)
    await flushed.close()
  })

  test('that keeps failing is not awaited by closing', async () => {
    const doubtful = await committed(1)
    ending(new Error('EIO'))
    await flushed.close()
    expect(await doubtful.outcome).toMatchObject({ outcomeUnknown: true })
  })

  test('that fails when the log has just been truncated is made good too', async () => {
    const doubtful = await committed(1)
    db.pragma('wal_checkpoint(TRUNCATE)')
    end(new Error('EIO'))
    ending(null)
    expect(await doubtful.outcome).toBe(1)
  })

  test('that can be made good is awaited by closing', async () => {
    flushed = flushing(60_000)
    const doubtful = await committed(1)
    end(new Error('EIO'))
    await asked(1)
    const closed = flushed.close()
    end(new Error('EIO'))
    ending(null)
    expect(await Promise.race([doubtful.outcome, sleep(10_000, 'given up')])).toBe(1)
    await closed
  })

  test('that was made good has no later effect: no write is refused, and closing waits for later writes', async () => {
    flushed = flushing(2_000)
    const doubtful = await committed(1)
    end(new Error('EIO'))
    const stop = ending(null)
    expect(await doubtful.outcome).toBe(1)
    stop()
    await sleep(2_100) // longer than the repair may take
    const last = await committed(2)
    let isClosed = false
    const closed = flushed.close().then(() => {
      isClosed = true
    })
    await sleep(20)
    expect(isClosed).toBe(false)
    end()
    expect(await last.outcome).toBe(2)
    await closed
  })

  test('counts writes that wait for it towards the limit of unanswered ones', async () => {
    const held = await committed(0)
    const results = outcomes(Array.from({ length: 50 }, (_, index) => add(index + 1, flushed)))
    end()
    await held.outcome
    await asked(1)
    end()
    expect((await results).filter((result) => result instanceof StoreUnavailable)).toHaveLength(1)
    expect(await Promise.race([add(51, flushed), sleep(50, 'it waits')])).toBe('it waits')
  })

  test('is awaited by closing', async () => {
    const write = await committed(1)
    let isClosed = false
    const closed = flushed.close().then(() => {
      isClosed = true
    })
    await sleep(20)
    expect([write.isAnswered, isClosed]).toEqual([false, false])
    end()
    expect(await write.outcome).toBe(1)
    await closed
  })

  test('reaches the file that SQLite writes, even through a symbolic link', async () => {
    const linked = join(temporaryDirectory(), 'link.db')
    symlinkSync(file, linked)
    const descriptors: number[] = []
    const connection = openDatabase(linked)
    const writer = new GroupCommit(connection, {
      flush(descriptor, done) {
        descriptors.push(descriptor)
        fdatasync(descriptor, done)
      },
    })
    await writer.submit(() => connection.exec('INSERT INTO entries (id) VALUES (1)'))
    expect(descriptors).toHaveLength(1)
    expect(fstatSync(descriptors[0] ?? -1).ino).toBe(statSync(`${file}-wal`).ino)
    await writer.close()
    connection.close()
  })
})
