// The RPC doors of this process.
import type { Address } from '../../services/rpc/address.js'
import type { Dispatcher } from '../../services/rpc/dispatcher.js'
import { type OnTurnedAway, type TlsMaterial, TOO_MANY } from '../../services/rpc/listener.js'
import { type RpcServer, startRpcServer } from '../../services/rpc/rpc-server.js'
import type { Config } from '../config.js'
import { errorCode, isOfSystem } from '../error-code.js'
import { CommandError, EXIT } from '../exit.js'
import { connectionLimits } from '../open-files.js'
import { lineAMinute } from '../telemetry/line-a-minute.js'
import type { Log } from '../telemetry/log.js'

/** @throws CommandError when the address cannot be listened on. */
export function startRpcPart(
  config: Config,
  dispatcher: Dispatcher,
  address: Address,
  tls: TlsMaterial | undefined,
  log: Log,
): Promise<RpcServer> {
  return startRpcServer({
    dispatcher,
    address,
    tls,
    callers: config.rpcCallers,
    maxConnections: connectionLimits(config).rpc,
    onTurnedAway: tellOfTurnedAway(log),
  }).catch((error: unknown) => {
    throw cannotListen(error)
  })
}

function tellOfTurnedAway(log: Log): OnTurnedAway {
  const tell = lineAMinute(log)
  return (why, from) => {
    const by = why === TOO_MANY ? 'the limit of RPC connections' : 'TLS'
    tell(by, `${by} has turned away ${from ?? 'a caller'}: ${why}`)
  }
}

function cannotListen(error: unknown): unknown {
  if (!isOfSystem(error)) return error
  const code = errorCode(error, '')
  if (code === 'ENOTSOCK') {
    const text = `RPC_LISTEN must be free or an old socket, which is replaced: ${error.message}, and stays`
    return new CommandError(text, EXIT.configuration, 'set RPC_LISTEN to another path, or move what is there away')
  }
  const [what, hint] =
    code === 'EADDRINUSE' ? ['it is in use', 'stop what listens there, or set RPC_LISTEN'] : [code, 'set RPC_LISTEN']
  return new CommandError(`cannot listen for RPCs: ${what} (${error.message})`, EXIT.unavailable, hint)
}
