// PgBouncer in front of a server of this machine, where it is installed.
import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { chownSync, writeFileSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { onTestFinished } from 'vitest'
import { freePort } from '../harness/free-port.js'
import { query } from './cluster.js'

const NOBODY = 65_534
const isRoot = process.getuid?.() === 0

/** For example 1.18; undefined where there is none. */
export const pgbouncerVersion = /PgBouncer (\d+\.\d+)/.exec(
  spawnSync('pgbouncer', ['--version'], { encoding: 'utf8' }).stdout ?? '',
)?.[1]

/** 1.21 brought prepared statements to pools that give each transaction another connection. */
export const keepsPrepared = Number(pgbouncerVersion?.split('.')[1]) >= 21

/** The address of a database through a PgBouncer with these settings, which ends with the test. */
export async function throughPgbouncer(url: string, settings: Readonly<Record<string, string>>): Promise<string> {
  const directory = await mkdtemp(path.join(tmpdir(), 'survey-auth-pgbouncer-'))
  const server = new URL(url)
  const port = await freePort()
  const lines = {
    listen_addr: '127.0.0.1',
    listen_port: port,
    unix_socket_dir: '',
    auth_type: 'any',
    logfile: path.join(directory, 'log'),
    ...settings,
  }
  const file = path.join(directory, 'pgbouncer.ini')
  const text = Object.entries(lines).map(([name, value]) => `${name} = ${value}\n`)
  writeFileSync(
    file,
    `[databases]\n* = host=${server.hostname} port=${server.port} user=postgres\n[pgbouncer]\n${text.join('')}`,
  )
  if (isRoot) for (const one of [directory, file]) chownSync(one, NOBODY, NOBODY)
  const child = spawn('pgbouncer', ['--quiet', file], { stdio: 'ignore', ...(isRoot && { uid: NOBODY, gid: NOBODY }) })
  onTestFinished(async () => {
    await end(child)
    await rm(directory, { recursive: true, force: true })
  })
  server.port = String(port)
  await untilItAnswers(server.href)
  return server.href
}

async function untilItAnswers(url: string): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    try {
      await query(url, 'SELECT 1')
      return
    } catch (error) {
      if (attempt === 100) throw error
      await new Promise((resolve) => setTimeout(resolve, 50))
    }
  }
}

function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null) return Promise.resolve()
  return new Promise((resolve) => {
    child.once('exit', () => resolve())
    child.kill('SIGKILL')
  })
}
