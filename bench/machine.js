// What a figure depends on beside the program.
import { readFileSync } from 'node:fs'
import { statfs } from 'node:fs/promises'
import os from 'node:os'

const FILE_SYSTEMS = {
  61267: 'ext4',
  16914836: 'tmpfs (its fsync costs nothing)',
  1481003842: 'xfs',
  2435016766: 'btrfs',
  2035054128: 'overlay',
}
const PEERS = ['oidc-provider', '@node-oauth/oauth2-server', 'fastify']

export async function machine() {
  const { type } = await statfs(os.tmpdir())
  return {
    cpu: os.cpus()[0]?.model.trim() ?? 'unknown',
    cores: os.cpus().length,
    memoryGiB: Math.round(os.totalmem() / 2 ** 30),
    system: `${os.type()} ${os.release().split('-')[0]} ${os.arch()}`,
    node: process.version,
    fileSystem: FILE_SYSTEMS[type] ?? `type 0x${type.toString(16)}`,
    versions: {
      ...Object.fromEntries(PEERS.map((name) => [name, versionIn(new URL(`node_modules/${name}/`, import.meta.url))])),
      'better-sqlite3': versionIn(new URL('../node_modules/better-sqlite3/', import.meta.url)),
    },
  }
}

function versionIn(folder) {
  return JSON.parse(readFileSync(new URL('package.json', folder), 'utf8')).version
}

/** CPU time of this machine since it started, in ticks: all of it, and what its host gave to others. */
export function machineTicks() {
  try {
    const fields = readFileSync('/proc/stat', 'utf8').split('\n', 1)[0].trim().split(/\s+/).slice(1, 9).map(Number)
    return { all: fields.reduce((sum, ticks) => sum + ticks, 0), stolen: fields[7] }
  } catch {
    return { all: Number.NaN, stolen: Number.NaN }
  }
}
