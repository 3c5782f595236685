// What deploy/docker/role.sql makes in an empty PostgreSQL, by psql. Skipped where there is none.
import { execFileSync, spawnSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { expect, onTestFinished, test } from 'vitest'
import { Cluster, query } from '../postgres/cluster.js'

const SCRIPT = fileURLToPath(new URL('../../deploy/docker/role.sql', import.meta.url))
const hasPsql = spawnSync('psql', ['--version']).status === 0

test.skipIf(!hasPsql)(
  'with compose the service owns its database, and nobody logs in as the superuser by a password',
  async () => {
    const cluster = await Cluster.create()
    onTestFinished(() => cluster.destroy())
    const server = cluster.urlOf('postgres')
    await query(server, "ALTER ROLE postgres PASSWORD 'from-the-image'")
    const env = { ...process.env, POSTGRES_PASSWORD: "it's" }
    execFileSync('psql', ['--no-psqlrc', '--set=ON_ERROR_STOP=1', `--file=${SCRIPT}`, server], { env })
    const roles =
      'SELECT rolname, rolsuper, rolpassword IS NULL AS none FROM pg_authid WHERE rolcanlogin ORDER BY rolname'
    expect(await query(server, roles)).toEqual([
      { rolname: 'postgres', rolsuper: true, none: true },
      { rolname: 'survey_auth', rolsuper: false, none: false },
    ])
    const owned = new URL(cluster.urlOf('survey_auth'))
    owned.username = 'survey_auth'
    await query(owned.href, 'CREATE TABLE owned (id int)')
  },
)
