// A PostgreSQL for a measured survey-auth, with its own settings but for memory. Its processes share the core this one is on.
import { Cluster } from '../../test/postgres/cluster.js'

const cluster = await Cluster.create({ shared_buffers: '512MB' })
const end = async () => {
  await cluster.destroy()
  process.exit()
}
process.on('SIGTERM', end)
process.on('disconnect', end)
process.send({ token: await cluster.createDatabase(), survey: await cluster.createDatabase() })
