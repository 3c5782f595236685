// Where the RPC doors are when nothing is configured: sockets in DATA_DIR.
import path from 'node:path'
import { type Address, isTooLongForSocket } from '../../services/rpc/address.js'
import type { Config, RpcAddressSetting } from '../config.js'
import { CommandError, EXIT } from '../exit.js'
import type { Log } from '../telemetry/log.js'

/** `all` is everything in one process; each other mode is one process of a separated service. */
export const MODES = ['all', 'gateway', 'token', 'survey'] as const
export type Mode = (typeof MODES)[number]

const socketNames = { all: 'rpc.sock', token: 'token.sock', survey: 'survey.sock' } as const

/** Where a process of each mode listens or calls. */
export const usedAddresses: Readonly<Record<Mode, readonly RpcAddressSetting[]>> = {
  all: ['rpcListen', 'surveyProviderUrl'],
  gateway: ['tokenServiceUrl', 'surveyServiceUrl'],
  token: ['rpcListen'],
  survey: ['rpcListen', 'tokenServiceUrl', 'surveyProviderUrl'],
}

export function socketIn(config: Pick<Config, 'dataDir'>, mode: keyof typeof socketNames) {
  return { kind: 'unix', path: path.join(config.dataDir, socketNames[mode]) } as const
}

/**
 * Where this process listens for RPCs; undefined when it does not.
 * @throws CommandError when this process has only services and no other process could reach them.
 */
export function rpcAddressOf(mode: Mode, config: Config, log: Log): Address | undefined {
  if (mode === 'gateway') return undefined
  if (config.rpcListen === 'off') {
    if (mode === 'all') return undefined
    const hint = 'unset it for a socket in DATA_DIR, or set an address'
    throw new CommandError(`nobody could reach serve ${mode}: RPC_LISTEN is off`, EXIT.configuration, hint)
  }
  if (config.rpcListen !== 'socket') return config.rpcListen
  const address = socketIn(config, mode)
  if (!isTooLongForSocket(address.path)) return address
  if (mode !== 'all') {
    const hint = 'set DATA_DIR to a shorter one, or set RPC_LISTEN'
    throw new CommandError(`DATA_DIR is too long for a socket: ${address.path}`, EXIT.configuration, hint)
  }
  log.note('DATA_DIR is too long for a socket, so there is no RPC door: set RPC_LISTEN')
  return undefined
}

export function tokenServiceUrlOf(config: Config): readonly Address[] {
  return config.tokenServiceUrl ?? [socketIn(config, 'token')]
}

export function surveyServiceUrlOf(config: Config): readonly Address[] {
  return config.surveyServiceUrl ?? [socketIn(config, 'survey')]
}
