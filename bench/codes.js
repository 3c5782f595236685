// Fresh codes, issued by the measured service itself, as when people confirm: if another process wrote to its database, the
// service would have to look up everything it keeps again in every round.
import { randomBytes } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { REDIRECT_URI, SCOPE } from './person.js'
import { importOfDist } from './root.js'
import { inGroups } from './seed.js'

const TIMEOUT_MS = 10_000
const SETTLED_MS = 500 // until what was written is copied from the log into the database

/**
 * @param {{ product: string, dataDir: string, mode: 'all' | 'token' }} service a running one; `product` is its checkout
 * @param {{ appid: string, newcomers: string[], atOnce: number }} seeded
 * @returns {Promise<{ issue: (count: number) => Promise<string[]>, close: () => void }>}
 */
export async function codeIssuer({ product, dataDir, mode }, { appid, newcomers, atOnce }) {
  const [{ MultiplexTransport }, { clientOf }, { TokenService }, { newFormId }, { socketIn }] = await Promise.all(
    [
      'services/rpc/multiplex-transport.js',
      'services/rpc/client.js',
      'gen/surveyauth/v1/token_service_pb.js',
      'gateway/pages/csrf.js',
      'bin/compose/addresses.js',
    ].map((file) => importOfDist(file, product)),
  )
  const transport = new MultiplexTransport({
    address: socketIn({ dataDir }, mode),
    tls: undefined,
    maxRequestBytes: 65_536,
    maxResponseBytes: 65_536,
    defaultTimeoutMs: TIMEOUT_MS,
  })
  const token = clientOf(TokenService, transport.invoke)
  let next = 0
  return {
    async issue(count) {
      const codes = await inGroups(count, atOnce, async () => {
        const sessionToken = newcomers[next++ % newcomers.length]
        const requestId = newFormId(randomBytes, Date.now())
        return (await token.issueCode({ sessionToken, requestId, appid, redirectUri: REDIRECT_URI, scope: SCOPE })).code
      })
      await sleep(SETTLED_MS)
      return codes
    },
    close: () => transport.close(),
  }
}
