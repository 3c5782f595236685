// Where workers find the services of their parent: a socket that only this user can reach, whatever RPC_LISTEN says. So the
// bounds on callers and connections at RPC_LISTEN are for other processes only, and DATA_DIR may be of any length.
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { type Address, isTooLongForSocket } from '../../services/rpc/address.js'
import type { Config } from '../config.js'
import { errorCode } from '../error-code.js'
import { CommandError, EXIT } from '../exit.js'

export interface WorkersDoor {
  readonly address: Address
  /** The configuration that applies to this door. */
  of(config: Config): Config
  remove(): Promise<void>
}

const SOCKET = 'services.sock'

/** Makes its folder, with mode 0700, removed when this process ends unless it is killed. @throws CommandError when it cannot. */
export function makeWorkersDoor(): WorkersDoor {
  const folder = makeFolder()
  const remove = () => rmSync(folder, { recursive: true, force: true })
  process.once('exit', remove)
  return {
    address: { kind: 'unix', path: path.join(folder, SOCKET) },
    of: (config) => ({
      ...config,
      rpcReflection: 'off',
      rpcMaxConnections: Number.MAX_SAFE_INTEGER,
    }),
    async remove() {
      process.off('exit', remove)
      remove()
    },
  }
}

function makeFolder(): string {
  const prefix = path.join(tmpdir(), 'survey-auth-workers-')
  if (isTooLongForSocket(path.join(`${prefix}XXXXXX`, SOCKET))) {
    throw new CommandError(
      `TMPDIR is too long for the socket of the workers: ${tmpdir()}`,
      EXIT.configuration,
      'set TMPDIR to a shorter one',
    )
  }
  try {
    return mkdtempSync(prefix)
  } catch (error) {
    const reason = errorCode(error, 'unknown')
    throw new CommandError(
      `no folder for the socket of the workers can be made in ${tmpdir()} (${reason})`,
      EXIT.configuration,
      'set TMPDIR to one that can be written to',
    )
  }
}
