import { once } from 'node:events'
import { join } from 'node:path'
import { Worker } from 'node:worker_threads'
import { describe, expect, test } from 'vitest'
import { driverPath } from '../../services/storage/sqlite/driver.js'
import { migrate, type Schema } from '../../services/storage/sqlite/migrate.js'
import { BUSY_TIMEOUT_MS, type Connection, openDatabase } from '../../services/storage/sqlite/open.js'
import { surveySchema } from '../../services/survey/store/sqlite/schema.js'
import { openSqliteSurveyStore } from '../../services/survey/store/sqlite/sqlite-survey-store.js'
import { tokenSchema } from '../../services/token/store/sqlite/schema.js'
import { openSqliteTokenStore } from '../../services/token/store/sqlite/sqlite-token-store.js'
import { temporaryDirectory } from './temporary-directory.js'

const steps = [
  { version: 1, name: 'one', sql: 'CREATE TABLE one (x INTEGER) STRICT' },
  { version: 2, name: 'two', sql: 'ALTER TABLE one ADD COLUMN y INTEGER; CREATE TABLE two (x INTEGER) STRICT' },
  { version: 3, name: 'three', sql: 'CREATE TABLE three (x INTEGER) STRICT' },
]
const schemaUpTo = (count: number): Schema => ({ name: 'test', applicationId: 7, migrations: steps.slice(0, count) })
const file = () => join(temporaryDirectory(), 'a.db')
const tables = (db: Connection) =>
  db.prepare<[], string>("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY rowid").pluck().all()

describe('migrations', () => {
  test('an empty database gets every step, a migrated one only what is new', () => {
    const db = openDatabase(file())
    expect(migrate(db, schemaUpTo(1))).toEqual({ from: 0, to: 1 })
    db.exec('INSERT INTO one (x) VALUES (5)')
    expect(migrate(db, schemaUpTo(3))).toEqual({ from: 1, to: 3 })
    expect(migrate(db, schemaUpTo(3))).toEqual({ from: 3, to: 3 })
    expect(tables(db)).toEqual(['one', 'two', 'three'])
    expect(db.prepare('SELECT x, y FROM one').all()).toEqual([{ x: 5, y: null }])
    db.close()
  })

  test('a process that starts while another one migrates waits for it, longer than for any other write', async () => {
    const path = file()
    const db = openDatabase(path)
    migrate(db, schemaUpTo(1))
    const migrating = new Worker(
      `const { workerData: [driver, path] } = require('node:worker_threads')
       const db = new (require(driver))(path)
       db.exec('BEGIN IMMEDIATE; ALTER TABLE one ADD COLUMN y INTEGER; CREATE TABLE two (x INTEGER) STRICT')
       db.pragma('user_version = 2')
       require('node:worker_threads').parentPort.postMessage('begun')
       Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ${BUSY_TIMEOUT_MS + 300})
       db.exec('COMMIT')
       db.close()`,
      { eval: true, workerData: [driverPath, path] },
    )
    await once(migrating, 'message')
    const begunAt = performance.now()
    migrate(db, schemaUpTo(3))
    expect(performance.now() - begunAt).toBeGreaterThan(BUSY_TIMEOUT_MS)
    expect(tables(db)).toEqual(['one', 'two', 'three'])
    expect(db.pragma('busy_timeout', { simple: true })).toBe(BUSY_TIMEOUT_MS)
    await migrating.terminate()
    db.close()
  })

  test('failed steps leave the database at its previous version', () => {
    const db = openDatabase(file())
    migrate(db, schemaUpTo(1))
    const bad = { ...schemaUpTo(2), migrations: [...steps.slice(0, 2), { version: 3, name: 'bad', sql: 'CREATE x' }] }
    expect(() => migrate(db, bad)).toThrow('syntax error')
    expect(tables(db)).toEqual(['one'])
    expect(migrate(db, schemaUpTo(3))).toEqual({ from: 1, to: 3 })
    db.close()
  })

  test('a database that a newer program has migrated is used and left as it is', () => {
    const db = openDatabase(file())
    migrate(db, schemaUpTo(3))
    expect(migrate(db, schemaUpTo(2))).toEqual({ from: 3, to: 3 })
    expect(migrate(db, schemaUpTo(3))).toEqual({ from: 3, to: 3 })
    expect(tables(db)).toEqual(['one', 'two', 'three'])
    db.close()
  })

  test('after a step that excludes them, programs that know too little refuse the database and leave it alone', () => {
    const path = file()
    const contracting = { version: 3, name: 'three', sql: 'DROP TABLE two', usableFrom: 2 }
    const schema = { ...schemaUpTo(4), migrations: [...steps.slice(0, 2), contracting, { ...steps[2], version: 4 }] }
    const db = openDatabase(path)
    migrate(db, schema as Schema)
    expect(() => migrate(db, schemaUpTo(1))).toThrow(
      `the test database ${path} has schema version 4, which needs a program that knows 2; this one knows 1: run a newer program`,
    )
    expect(migrate(db, schemaUpTo(2))).toEqual({ from: 4, to: 4 })
    expect(tables(db)).toEqual(['one', 'three'])
    db.close()
  })

  test('the file of one store is refused by another', async () => {
    const path = file()
    await openSqliteTokenStore({ file: path }).close()
    expect(() => openSqliteSurveyStore({ file: path })).toThrow(`${path} is not a survey database of this program`)
    await openSqliteTokenStore({ file: path }).close()
  })

  test('a database of another program is refused', () => {
    const path = file()
    const db = openDatabase(path)
    db.exec('CREATE TABLE notes (text)')
    db.close()
    expect(() => openSqliteTokenStore({ file: path })).toThrow('is not a token database of this program')
  })

  test.each([tokenSchema, surveySchema])('the versions of the $name schema count from 1 without gaps', (schema) => {
    expect(schema.migrations.map(({ version }) => version)).toEqual(schema.migrations.map((_, index) => index + 1))
  })

  test.each([tokenSchema, surveySchema])('every table of the $name schema is strict', (schema) => {
    const db = openDatabase(':memory:')
    migrate(db, schema)
    const list = db.prepare<[], { name: string; strict: number }>('SELECT name, strict FROM pragma_table_list').all()
    const own = list.filter(({ name }) => !name.startsWith('sqlite_'))
    expect(own.length).toBeGreaterThan(0)
    expect(own.filter(({ strict }) => strict !== 1)).toEqual([])
    db.close()
  })
})
