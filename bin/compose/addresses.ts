// Where the RPC doors are when nothing is configured: sockets in DATA_DIR.
import path from 'node:path'
import type { Address } from '../../services/rpc/address.js'
import type { Config, RpcAddressSetting } from '../config.js'
import { CommandError, EXIT } from '../exit.js'
import type { Log } from '../log.js'
import type { Mode } from './mode.js'

/** Longest path of a Unix socket on Linux, in bytes, without the closing NUL. */
const MAX_SOCKET_PATH = 107

const socketNames = { all: 'rpc.sock', token: 'token.sock', survey: 'survey.sock' } as const

/** Where a process of each mode listens or calls. */
export const usedAddresses: Readonly<Record<Mode, readonly RpcAddressSetting[]>> = {
  all: ['rpcListen', 'rpcConnectListen'],
  gateway: ['tokenServiceUrl', 'surveyServiceUrl'],
  token: ['rpcListen', 'rpcConnectListen'],
  survey: ['rpcListen', 'rpcConnectListen', 'tokenServiceUrl'],
}

export function isTooLongForSocket(file: string): boolean {
  return Buffer.byteLength(file) > MAX_SOCKET_PATH
}

export function socketIn(config: Pick<Config, 'dataDir'>, mode: keyof typeof socketNames): Address {
  return { kind: 'unix', path: path.join(config.dataDir, socketNames[mode]) }
}

/**
 * Where this process listens for RPCs; undefined when it does not.
 * @throws CommandError when a socket has no room for its path: Node 20 cuts it off and listens at what is left.
 */
export function rpcAddressOf(mode: Mode, config: Config, log: Log): Address | undefined {
  if (mode === 'gateway' || config.rpcListen === 'off') return undefined
  if (config.rpcConnectListen) demandRoom('RPC_CONNECT_LISTEN', config.rpcConnectListen)
  if (config.rpcListen !== 'socket') return demandRoom('RPC_LISTEN', config.rpcListen)
  const address = socketIn(config, mode)
  if (mode !== 'all') return demandRoom('DATA_DIR', address)
  if (address.kind !== 'unix' || !isTooLongForSocket(address.path)) return address
  log.note('DATA_DIR is too long for a socket, so there is no RPC door: set RPC_LISTEN')
  return undefined
}

function demandRoom(variable: string, address: Address): Address {
  if (address.kind !== 'unix' || !isTooLongForSocket(address.path)) return address
  const hint =
    variable === 'DATA_DIR' ? 'set DATA_DIR to a shorter one, or set RPC_LISTEN' : `set ${variable} to a shorter one`
  throw new CommandError(`${variable} is too long for a socket: ${address.path}`, EXIT.configuration, hint)
}

export function tokenServiceUrlOf(config: Config): Address {
  return config.tokenServiceUrl ?? socketIn(config, 'token')
}

export function surveyServiceUrlOf(config: Config): Address {
  return config.surveyServiceUrl ?? socketIn(config, 'survey')
}
