// Everything that a process's metrics can say.
import { Code } from '@connectrpc/connect'
import { createMetrics, type Followed } from '../../bin/telemetry/metrics.js'
import { ErrorReason } from '../../gen/surveyauth/v1/error_pb.js'
import type { Provider } from '../../services/token/oidc/provider.js'

/** Labels of each series that a process exposes, once everything has happened. */
export async function exposed(): Promise<Map<string, Set<string>>> {
  const metrics = createMetrics()
  const request = { route: 'user', method: 'GET', status: 200, outcome: 'ok', durationMs: 1, requestId: 'r' }
  metrics.request(request)
  for (const method of ['ExchangeCode', 'SignIn']) {
    const call = { rpc: `s/${method}`, method, caller: 'gateway', requestId: 'r', durationMs: 1 } as const
    metrics.call({ ...call, code: undefined, reason: undefined })
    metrics.call({ ...call, code: Code.Unauthenticated, reason: ErrorReason.INVALID_CREDENTIALS })
  }
  metrics.certificate('token.pem', 0)
  metrics.commit('token', 1, 1)
  metrics.replayed('revoked_grant')
  metrics.providers([knownProvider('corp', 1)])
  metrics.surveyProvider({ isBreakerOpen: true })
  metrics.cleanUpWaits('token', true)
  metrics.follow(FOLLOWED)
  const text = await metrics.text()
  const series = new Map([['up', new Set<string>()]])
  for (const [, name = '', labels = ''] of text.matchAll(/^(\w+)(?:\{(.*)\})? \S+$/gm)) {
    const known = series.get(name) ?? new Set()
    for (const [, label = ''] of labels.matchAll(/(\w+)="/g)) known.add(label)
    series.set(name, known)
  }
  return series
}

const FOLLOWED: Followed = {
  notReady: () => ['token database'],
  readyBut: () => ['synchronous standby db2 of the token database'],
  connections: () => new Map([['token', { inUse: 1, idle: 2, waiting: 3 }]]),
  diskFree: async () => new Map([['token', 1]]),
  lastBackup: async () => new Map([['token', 2_000]]),
}

/** One whose metadata are this old. */
export function knownProvider(id: string, ageMs: number | undefined): Provider {
  return { settings: { id }, metadata: () => ({ ageMs, failure: undefined }) } as Provider
}
