// When other processes' writes are checked for, and for which reads: a read that comes after a check needs its own.
import { join } from 'node:path'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { expect, onTestFinished, test } from 'vitest'
import { endOfTurn, presentEnd } from '../../event-loop/end-of-turn.js'
import { ForeignWrites } from '../../services/storage/sqlite/foreign-writes.js'
import { type Connection, openDatabase } from '../../services/storage/sqlite/open.js'
import { temporaryDirectory } from './temporary-directory.js'

/** A database that `write` writes to as another process would; `seen` returns how often that was noticed. */
function open() {
  const file = join(temporaryDirectory(), 'any.db')
  const [reader, other] = [openDatabase(file), openDatabase(file)]
  onTestFinished(() => {
    for (const db of [reader, other] as Connection[]) db.close()
  })
  other.exec('CREATE TABLE written (n)')
  let seen = 0
  const foreign = new ForeignWrites(reader, () => {
    seen += 1
  })
  return { reader, foreign, write: () => other.exec('INSERT INTO written VALUES (1)'), seen: () => seen }
}

/** Makes the code that follows start as a request does, within a turn and not at its end. */
const inATurn = () => new Promise<void>((resolve) => setTimeout(resolve, 1))

test('a read sees what was written before its turn ends', async () => {
  const { foreign, write, seen } = open()
  await inATurn()
  const look = foreign.look()
  write()
  await look
  expect(seen()).toBe(1)
})

test('a read that follows another one, of the same or another database, waits for no further turn', async () => {
  const [one, another] = [open(), open()]
  await inATurn()
  let turns = 0
  await endOfTurn()
  const counting = (async () => {
    while (turns === 0) await nextTurn().then(() => (turns += 1))
  })()
  another.write()
  await one.foreign.look()
  await another.foreign.look()
  await one.foreign.look()
  expect(turns).toBe(0)
  expect(another.seen()).toBe(1)
  await counting
})

test('foreign writes are looked for again at every end of a turn', async () => {
  const { foreign, write, seen } = open()
  for (let round = 1; round <= 3; round++) {
    await inATurn()
    expect(presentEnd()).toBeUndefined()
    write()
    await foreign.look()
    await foreign.look()
    expect(seen()).toBe(round)
  }
})

test('the end of a turn lasts until all that waited for it has gone on, and is over before the next read', async () => {
  await inATurn()
  await endOfTurn()
  const end = presentEnd()
  for (let step = 0; step < 100; step++) await undefined
  expect(end).toBeDefined()
  expect(presentEnd()).toBe(end)
  await new Promise<void>((resolve) => process.nextTick(() => process.nextTick(resolve)))
  expect(presentEnd()).toBeUndefined()
  await endOfTurn()
  expect(presentEnd()).not.toBe(end)
})

test('a look fails once the database is closed, in the same turn and in later ones', async () => {
  const { reader, foreign } = open()
  await inATurn()
  await foreign.look()
  reader.close()
  await expect(foreign.look()).rejects.toThrow('not open')
  await inATurn()
  await expect(foreign.look()).rejects.toThrow('not open')
})

test('a failed look fails every read of its turn, and the next turn tries again', async () => {
  const { reader, foreign } = open()
  let tries = 0
  foreign.lookNow = () => {
    tries += 1
    if (tries === 1) throw new Error('the disk is slow, and then it fails')
  }
  await inATurn()
  await endOfTurn()
  const looks = await Promise.allSettled([foreign.look(), foreign.look(), undefined, foreign.look()])
  expect(looks.map(({ status }) => status)).toEqual(['rejected', 'rejected', 'fulfilled', 'rejected'])
  expect(tries).toBe(1)
  await inATurn()
  await Promise.all([foreign.look(), foreign.look()])
  expect(tries).toBe(2)
  expect(reader.open).toBe(true)
})
