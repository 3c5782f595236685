import { spawnSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import path from 'node:path'
import { expect, test } from 'vitest'
import { DatabaseRefused } from '../../services/storage/database-refused.js'
import { Database, driverPath } from '../../services/storage/sqlite/driver.js'
import { temporaryDirectory } from './temporary-directory.js'

/** Enough that V8 collects some between two turns of the event loop, where no JavaScript runs. */
const COLLECTED = `
  const db = new (require(process.argv[1]))(':memory:')
  let kept = []
  let turns = 0
  const timer = setInterval(() => {
    for (let n = 0; n < 2000; n++) {
      const statement = db.prepare('SELECT ' + n)
      statement.get()
      if (n % 50 === 0) kept.push(statement)
    }
    if (kept.length > 2000) kept = []
    if (++turns === 120) clearInterval(timer)
  }, 5)
`

test('the driver survives garbage collection of its statements, as version 12 does not from Node 24.19 on', () => {
  const { status, signal, stderr } = spawnSync(process.execPath, ['--eval', COLLECTED, driverPath], {
    encoding: 'utf8',
  })
  expect({ status, signal, stderr }).toEqual({ status: 0, signal: null, stderr: '' })
})

test('a driver without a binary for this Node is named, with what helps', () => {
  const nativeBinding = path.join(temporaryDirectory(), 'other.node')
  writeFileSync(nativeBinding, 'for another Node')
  const open = () => new Database(':memory:', { nativeBinding })
  expect(open).toThrow(DatabaseRefused)
  expect(open).toThrow(`there is no SQLite driver for this Node, ${process.version}: use Node 22.14`)
})
