// Picks the version of the driver that this Node can use. Version 13 needs Node-API 10, which Node 20 never got, and crashes
// there. Version 12 crashes Node from 24.19 on as soon as a statement is garbage-collected.
import { createRequire } from 'node:module'
import type BetterSqlite3 from 'better-sqlite3'

const require = createRequire(import.meta.url)

const driver = Number(process.versions.napi) >= 10 ? 'better-sqlite3' : 'better-sqlite3-node20'

/** For other threads, to load the same driver. */
export const driverPath = require.resolve(driver)

export const Database: typeof BetterSqlite3 = require(driverPath)
