// `npm run test:crash`: crashes a database, or the service that holds it, at random moments under a mixed load, and checks
// later answers against what had been acknowledged. The load and the checks use only what apps and browsers use.
import { buildIfNeeded } from '../../bin/build-if-needed.js'
import { scriptOptions } from '../harness/script-options.js'

const options = scriptOptions('npm run test:crash', {
  database: [
    'sqlite',
    'sqlite: the service in one process is killed; postgres: the server, under two of each service',
    ['sqlite', 'postgres'],
  ],
  rounds: [200, 'how often'],
  clients: [64, "people at a time, each with an app's server behind"],
  minutes: [Number.POSITIVE_INFINITY, 'no further round after this time'],
})

buildIfNeeded()
if (options.database === 'postgres') {
  const { crashPostgres } = await import('./crash-postgres.js')
  process.exitCode = await crashPostgres(options)
} else {
  const { crashSqlite } = await import('./crash-sqlite.js')
  process.exitCode = await crashSqlite(options)
}
