// The process whose power is cut: commits to a token store one step at a time, and reports each.
// Arguments: file, number of steps, and how they are flushed: as the product does, `never`, or `failing`, which loses a
// flush now and then and prints `flush failed`. It prints `0 issued`, `0 redeemed`, `0 minted`, `0 revoked`, ...
import { fdatasync, writeSync } from 'node:fs'
import { FLUSH_FAILED } from './disk.js'
import { Steps } from './power-cut-steps.js'

const root = new URL('../../dist/services/', import.meta.url)
const { openDatabase } = await import(new URL('storage/sqlite/open.js', root).href)
const { GroupCommit } = await import(new URL('storage/sqlite/group-commit.js', root).href)
const { migrate } = await import(new URL('storage/sqlite/migrate.js', root).href)
const sqlite = (name) => import(new URL(`token/store/sqlite/${name}.js`, root).href)
const { createSqliteTokenStore } = await sqlite('sqlite-token-store')
const { tokenSchema } = await sqlite('schema')

/** Few, so that a round sees many checkpoints, each in its thread beside the commits. */
const CHECKPOINT_PAGES = 40

const FAILING = '.......x......x.......xxx....'

let flushes = 0
const ways = {
  product: { checkpointPages: CHECKPOINT_PAGES },
  never: { checkpointPages: CHECKPOINT_PAGES, flush: (_descriptor, done) => setImmediate(done, null) },
  failing: {
    checkpointPages: CHECKPOINT_PAGES,
    flush(descriptor, done) {
      const position = flushes++ % FAILING.length
      if (FAILING[position] === '.') return fdatasync(descriptor, done)
      writeSync(1, `${FLUSH_FAILED}\n`)
      setImmediate(done, new Error('EIO'))
    },
  },
}

const [file = '', count = '', way = 'product'] = process.argv.slice(2)
const db = openDatabase(file)
migrate(db, tokenSchema)
const steps = new Steps(createSqliteTokenStore(db, new GroupCommit(db, ways[way])))

await steps.prepare()
writeSync(1, 'ready\n')
let done = 0
for (let i = 0; done < Number(count); i += 1) {
  for (const step of steps.of(i)) {
    if (!(await isAcknowledged(i, step))) continue
    writeSync(1, `${i} ${step}\n`)
    done += 1
  }
}
process.kill(process.pid, 'SIGKILL') // not closed: closing would write more

/** False when its flush failed: this process sees that it happened, so the next step follows. */
async function isAcknowledged(i, step) {
  try {
    await steps.run(i, step)
    return true
  } catch (error) {
    if (way === 'failing' && error.outcomeUnknown) return false
    throw error
  }
}
