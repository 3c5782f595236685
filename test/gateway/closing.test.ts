// A connection that the server ends closes in stages, so that its client gets the whole answer whatever it sends meanwhile.
import net from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { type RunningGateway, startGateway } from './start-gateway.js'

const USER = '/api/oauth2/user?appid=app&access_token=tok&openid=oid'
const NICKNAME = 'x'.repeat(3_000_000) // more than is in transit at once
const services = { GetAuthorizedUser: () => ({ openid: 'oid', nickname: NICKNAME, avatar: '' }) }
const TRIES = 20
/** Clients at a time: so few that each reads at once, however busy the machine is. */
const AT_ONCE = 4
const MORE = 'GET /api/more HTTP/1.1\r\nHost: a\r\n\r\n'

/** How many clients got all their answers, that is text that ends in `}`, to `first`; each goes on sending meanwhile. */
async function complete(gateway: RunningGateway, first: string, tries = TRIES): Promise<number> {
  const isComplete = async () => {
    const client = net.connect(gateway.port, '127.0.0.1').setEncoding('latin1')
    client.on('error', () => undefined)
    let text = ''
    client.on('data', (piece) => {
      text += piece
    })
    const [ended, closed] = ['end', 'close'].map((event) => new Promise((resolve) => client.once(event, resolve)))
    client.write(first)
    const sending = setInterval(() => client.write(MORE), 5)
    await Promise.race([ended, closed]) // a busy machine may be reset, once it has the answer
    clearInterval(sending)
    client.end()
    await closed
    return text.endsWith('}')
  }
  let count = 0
  for (let tried = 0; tried < tries; tried += AT_ONCE) {
    const some = await Promise.all(Array.from({ length: AT_ONCE }, isComplete))
    count += some.filter(Boolean).length
  }
  return count
}

test.each([
  ['a request with Connection: close', `GET ${USER} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n`],
  ['a request of HTTP/1.0', `GET ${USER} HTTP/1.0\r\n\r\n`],
  ['bytes that are no request', 'garbage\r\n\r\n'],
  ['headers that are too large', `GET / HTTP/1.1\r\nHost: a\r\nA: ${'a'.repeat(40_000)}\r\n\r\n`],
  ['a body that is too large', `POST /connect/sign-in HTTP/1.1\r\nHost: a\r\nContent-Length: 2000000\r\n\r\nx`],
])('a client that goes on sending after %s gets the whole answer', async (_, first) => {
  await using gateway = await startGateway({ services })
  expect(await complete(gateway, first)).toBe(TRIES)
})

test('a client that goes on sending while the gateway drains gets the whole answer', async () => {
  await using gateway = await startGateway({ services })
  const answered = complete(gateway, `GET ${USER} HTTP/1.1\r\nHost: a\r\n\r\n`, AT_ONCE)
  await sleep(20)
  const [got] = await Promise.all([answered, gateway.drain(20_000)])
  expect(got).toBe(AT_ONCE)
})
