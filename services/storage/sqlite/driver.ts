// Picks the version of the driver that this Node can use. Version 13 needs Node-API 10, which Node 20 never got, and crashes
// there. Version 12 crashes Node from 24.19 on as soon as a statement is garbage-collected.
import { createRequire } from 'node:module'
import type BetterSqlite3 from 'better-sqlite3'
import { DatabaseRefused } from '../database-refused.js'

const require = createRequire(import.meta.url)

const driver = Number(process.versions.napi) >= 10 ? 'better-sqlite3' : 'better-sqlite3-node20'

/** For other threads, to load the same driver. */
export const driverPath = require.resolve(driver)

/** Opening one throws DatabaseRefused when the driver has no binary for this Node: it looks for one only then. */
export const Database: typeof BetterSqlite3 = new Proxy(require(driverPath) as typeof BetterSqlite3, {
  construct(driver, options) {
    try {
      return Reflect.construct(driver, options)
    } catch (error) {
      throw isWithoutBinary(error) ? new DatabaseRefused(withoutBinary(process.version)) : error
    }
  },
})

/** Not built, or for another Node. */
function isWithoutBinary(error: unknown): boolean {
  if (!(error instanceof Error)) return false
  const isUnbuilt = error.message.startsWith('Could not locate the bindings file')
  return isUnbuilt || ('code' in error && error.code === 'ERR_DLOPEN_FAILED')
}

function withoutBinary(node: string): string {
  return `there is no SQLite driver for this Node, ${node}: use Node 22.14 or newer; or install again with this one, and without --ignore-scripts`
}
