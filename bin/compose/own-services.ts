// Services of this process, as its own gateway calls them. It keeps their answers under leases, as gateways elsewhere do: to
// find one that holds takes less than to ask, even without a message.
import { HeldLease } from '../../services/answers/held-lease.js'
import { keepingAnswers } from '../../services/answers/kept-answers.js'
import type { Invoke } from '../../services/rpc/client.js'
import { createDirectDoor } from '../../services/rpc/direct-door.js'
import type { Dispatcher } from '../../services/rpc/dispatcher.js'
import type { Config } from '../config.js'
import { type KeepingSetup, REVALIDATE } from './remote.js'

/** How a gateway makes its calls to each. */
export function ownServices(
  dispatcher: Dispatcher,
  { tokenDatabase, surveyDatabase }: Config,
  { now, onVerified, leaseWorthWanted }: KeepingSetup,
): Readonly<Record<keyof typeof REVALIDATE, Invoke>> {
  const asGateway = createDirectDoor(dispatcher, 'gateway')
  if (tokenDatabase.kind !== 'sqlite') return { token: asGateway, survey: asGateway } // which grants no leases
  const lease = new HeldLease(createDirectDoor(dispatcher, 'local'), leaseWorthWanted)
  const keeping = { leases: [lease], now, onHeld: onVerified && (() => onVerified(1)) }
  const keepingOf = (service: keyof typeof REVALIDATE) => keepingAnswers(asGateway, REVALIDATE[service], keeping)
  return { token: keepingOf('token'), survey: surveyDatabase.kind === 'sqlite' ? keepingOf('survey') : asGateway }
}
