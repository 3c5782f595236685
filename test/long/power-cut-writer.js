// The process whose disk is cut off: commits to a token store one step at a time, and says so after each.
// Arguments: file, number of steps, FULL or NORMAL. What it says: `0 issued`, `0 redeemed`, `0 minted`, `0 revoked`, ...
import { writeSync } from 'node:fs'
import { Steps } from './power-cut-steps.js'

const root = new URL('../../dist/services/', import.meta.url)
const { openDatabase } = await import(new URL('sqlite/open.js', root).href)
const { GroupCommit } = await import(new URL('sqlite/group-commit.js', root).href)
const { migrate } = await import(new URL('sqlite/migrate.js', root).href)
const sqlite = (name) => import(new URL(`token/store/sqlite/${name}.js`, root).href)
const { createSqliteTokenStore } = await sqlite('sqlite-token-store')
const { tokenSchema } = await sqlite('schema')
const { KeptRows } = await sqlite('kept-rows')
const { tokenStoreWrites } = await sqlite('writes')

/** Few, so that a round sees many checkpoints, each in its thread beside the commits. */
const CHECKPOINT_PAGES = 200

const [file = '', count = '', synchronous = 'FULL'] = process.argv.slice(2)
const db = openDatabase(file)
// The only place where this can be anything else: what the product opens is FULL, and read back.
if (synchronous !== 'FULL') db.pragma(`synchronous = ${synchronous}`)
migrate(db, tokenSchema)
const kept = new KeptRows(db)
const writer = new GroupCommit(db, tokenStoreWrites(db, kept), { checkpointPages: CHECKPOINT_PAGES })
const steps = new Steps(createSqliteTokenStore(db, writer, kept))

await steps.prepare()
writeSync(1, 'ready\n')
let done = 0
for (let i = 0; done < Number(count); i += 1) {
  for (const step of steps.of(i)) {
    await steps.run(i, step)
    writeSync(1, `${i} ${step}\n`)
    done += 1
  }
}
process.kill(process.pid, 'SIGKILL') // not closed: what closing would write is not part of this
