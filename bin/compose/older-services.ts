// Calls whose method a service in another process lacks, as one of an older version does during an upgrade.
import type { DescMethod, Message } from '@bufbuild/protobuf'
import { Code, ConnectError } from '@connectrpc/connect'
import type { Invoke, Outgoing } from '../../services/rpc/client.js'
import { lineAMinute } from '../telemetry/line-a-minute.js'
import type { Log } from '../telemetry/log.js'

/** Makes them fail as unavailable, which they are until that service is upgraded, and names them in the log. */
export function tellingLacks(service: 'token' | 'survey', invoke: Invoke, log: Pick<Log, 'warning'>): Invoke {
  const tell = lineAMinute(log)
  const call = (method: DescMethod, request: Message, outgoing: Outgoing): Promise<Message> =>
    invoke(method, request, outgoing).catch((error: unknown) => {
      if (!(error instanceof ConnectError) || error.code !== Code.Unimplemented) throw error
      const what = `the ${service} service lacks ${method.parent.typeName}/${method.name}`
      tell(method.name, `${what}: it is of an older version, and must be upgraded before this process`)
      throw new ConnectError(what, Code.Unavailable)
    })
  return call as Invoke
}
