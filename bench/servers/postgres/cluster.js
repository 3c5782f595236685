// A PostgreSQL for one measured server, with its own settings but for memory, and an empty database for each name of the
// command line. Its processes share the core this one is on.
import { Cluster } from '../../../test/postgres/cluster.js'

const cluster = await Cluster.create({ shared_buffers: '512MB' })
const end = async () => {
  await cluster.destroy()
  process.exit()
}
process.on('SIGTERM', end)
process.on('disconnect', end)
const urls = {}
for (const name of process.argv.slice(2)) urls[name] = await cluster.createDatabase()
process.send(urls)
