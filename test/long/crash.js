// `npm run test:crash`: crashes a database, or the service that holds it, at random moments under a mixed load, and holds
// what is answered afterwards to what had been acknowledged. The load and the checks use nothing but what apps and
// browsers use.
//   --database NAME   sqlite: the service in one process, killed and started again; postgres: the server, stopped like a
//                     crash and started again under two gateways, two token and two survey services (sqlite)
//   --rounds N        how often (200)
//   --clients N       people at a time, each with an app's server behind (64)
//   --minutes N       no further round after this time (none)
import { parseArgs } from 'node:util'
import { buildIfNeeded } from '../../bin/build-if-needed.js'

const { values } = parseArgs({
  options: {
    database: { type: 'string', default: 'sqlite' },
    rounds: { type: 'string', default: '200' },
    clients: { type: 'string', default: '64' },
    minutes: { type: 'string', default: '1000000' },
  },
})
const options = { rounds: Number(values.rounds), clients: Number(values.clients), minutes: Number(values.minutes) }

buildIfNeeded()
if (values.database === 'postgres') {
  const { crashPostgres } = await import('./crash-postgres.js')
  process.exitCode = await crashPostgres(options)
} else if (values.database === 'sqlite') {
  const { crashSqlite } = await import('./crash-sqlite.js')
  process.exitCode = await crashSqlite(options)
} else {
  process.stderr.write('--database must be sqlite or postgres\n')
  process.exitCode = 2
}
