// A PostgreSQL for one measured server, with default settings except for memory, and an empty database for each name on the
// command line. Its processes share this process's core.
import { Cluster } from '../../../test/postgres/cluster.js'

const creating = create(process.argv.slice(2))
for (const event of ['SIGINT', 'SIGTERM', 'SIGHUP', 'disconnect']) process.on(event, end)
const { urls } = await creating
if (process.connected) process.send(urls)

async function create(databases) {
  const cluster = await Cluster.create({ shared_buffers: '512MB' })
  const urls = {}
  for (const name of databases) urls[name] = await cluster.createDatabase()
  return { cluster, urls }
}

async function end() {
  const { cluster } = await creating
  await cluster.destroy()
  process.exit()
}
