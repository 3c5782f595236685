// Where workers find the services of their parent: a socket that only this user can reach, whatever RPC_LISTEN says. So who
// may call and how many connections there may be is RPC_LISTEN's for others alone, and DATA_DIR may be as long as it likes.
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import type { Address } from '../../services/rpc/address.js'
import type { Config } from '../config.js'
import { CommandError, EXIT } from '../exit.js'

export interface WorkersDoor {
  readonly address: Address
  /** The configuration as it is for this door. */
  of(config: Config): Config
  remove(): Promise<void>
}

/** Makes its folder, with mode 0700. @throws CommandError when it cannot. */
export function makeWorkersDoor(): WorkersDoor {
  const folder = makeFolder()
  return {
    address: { kind: 'unix', path: path.join(folder, 'services.sock') },
    of: (config) => ({
      ...config,
      rpcConnectListen: undefined,
      rpcReflection: 'off',
      rpcMaxConnections: Number.MAX_SAFE_INTEGER,
    }),
    async remove() {
      rmSync(folder, { recursive: true, force: true })
    },
  }
}

function makeFolder(): string {
  try {
    return mkdtempSync(path.join(tmpdir(), 'survey-auth-workers-'))
  } catch (error) {
    const reason = error instanceof Error && 'code' in error ? String(error.code) : 'unknown'
    throw new CommandError(
      `no folder for the socket of the workers can be made in ${tmpdir()} (${reason})`,
      EXIT.configuration,
      'set TMPDIR to one that can be written to',
    )
  }
}
