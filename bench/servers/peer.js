// What the peers have in common: their one client, the storage they were told to use, and how it is filled.
import { serveParent } from './child.js'

export const CLIENT = { id: 'app_benchmark', secret: 'a-secret-of-the-benchmark-0123456789' }
export const HOUR = 3_600 // in seconds
export const DAY = 24 * HOUR

/** The peer's storage on the engine of the command line, `sqlite FILE` or `postgres URL`, empty. */
export async function openStorage(peer) {
  const [engine, address] = process.argv.slice(2)
  const { open } = await import(`./${engine}/${peer}.js`)
  return open(address)
}

/** @param {Record<string, (index: number) => Promise<unknown>>} makers make what is seeded, by name */
export function servePeer(server, storage, makers) {
  const seeds = Object.entries(makers).map(([name, make]) => [name, (count) => makeMany(storage, make, count)])
  serveParent(server, Object.fromEntries(seeds), { client: CLIENT })
}

/** All in one transaction, with one commit, since seeding is not measured. */
function makeMany({ together }, make, count) {
  return together(async () => {
    const made = []
    for (let index = 0; index < count; index++) made.push(await make(index))
    return made
  })
}
