// Callers are pinged; the clock is moved by hand, except inside node:http2.
import { once } from 'node:events'
import http2 from 'node:http2'
import net from 'node:net'
import { expect, onTestFinished, test, vi } from 'vitest'
import { CallersOverHttp2 } from '../../services/rpc/callers-over-http2.js'

const [ASKED_AFTER_MS, GIVEN_UP_AFTER_MS] = [10_000, 5_000]

async function open() {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval', 'setTimeout', 'clearTimeout'] })
  onTestFinished(() => void vi.useRealTimers())
  const server = http2.createServer()
  const callers = new CallersOverHttp2(server)
  const sockets = net.createServer((socket) => callers.accept(socket.on('error', () => undefined)))
  sockets.listen(0, '127.0.0.1')
  await once(sockets, 'listening')
  onTestFinished(() => {
    sockets.close()
    callers.destroy()
  })
  return { callers, port: (sockets.address() as net.AddressInfo).port, server, sockets }
}

/** Enough turns of the event loop for bytes in flight between two sockets of this process, and for their effects. */
async function turns(): Promise<void> {
  for (let turn = 0; turn < 50; turn += 1) await new Promise((resolve) => setImmediate(resolve))
}

test('a caller that answers pings is kept, and no timer remains once it has gone', async () => {
  const { port, sockets } = await open()
  const session = http2.connect(`http://127.0.0.1:${port}`)
  onTestFinished(() => session.destroy())
  const accepted = once(sockets, 'connection')
  await once(session, 'remoteSettings')
  const [connection] = (await accepted) as [net.Socket]
  for (let asked = 0; asked < 3; asked += 1) {
    vi.advanceTimersByTime(ASKED_AFTER_MS)
    for (let n = 0; n < 20 && vi.getTimerCount() > 1; n += 1) await new Promise((resolve) => session.ping(resolve))
    expect(vi.getTimerCount(), 'it has answered').toBe(1)
  }
  const gone = once(connection, 'close')
  session.close()
  await gone
  expect(vi.getTimerCount()).toBe(0)
})

test('a caller that does not answer pings is dropped', async () => {
  const { port } = await open()
  const peer = net.connect(port, '127.0.0.1').on('error', () => undefined)
  onTestFinished(() => void peer.destroy())
  peer.write('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n')
  peer.write(Buffer.from([0, 0, 0, 4, 0, 0, 0, 0, 0])) // empty SETTINGS
  await once(peer, 'data')
  const gone = new Promise((resolve) => peer.resume().once('close', resolve))
  vi.advanceTimersByTime(ASKED_AFTER_MS + GIVEN_UP_AFTER_MS - 1)
  expect(peer.destroyed).toBe(false)
  vi.advanceTimersByTime(1)
  await gone
})

test('on closing, a caller that answers pings is waited for until its calls have ended', async () => {
  const { callers, port, server } = await open()
  const session = http2.connect(`http://127.0.0.1:${port}`).on('error', () => undefined)
  onTestFinished(() => session.destroy())
  const stream = session.request({ ':path': '/' }).resume()
  const [serving] = (await once(server, 'stream')) as [http2.ServerHttp2Stream]
  let isClosed = false
  const closed = callers.close().then(() => {
    isClosed = true
  })
  const ended = once(stream, 'close')
  await once(session, 'goaway') // behind the ping
  await turns()
  vi.advanceTimersByTime(ASKED_AFTER_MS + GIVEN_UP_AFTER_MS)
  await turns()
  expect(isClosed).toBe(false)
  serving.respond({ ':status': 200 }, { endStream: true })
  await ended
  await closed
})
