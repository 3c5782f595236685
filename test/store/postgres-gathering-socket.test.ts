import { once } from 'node:events'
import { createServer, type Socket } from 'node:net'
import { setImmediate, setTimeout as sleep } from 'node:timers/promises'
import { expect, onTestFinished, test } from 'vitest'
import { createGatheringSocket } from '../../services/postgres/gathering-socket.js'

/** A connected socket, how its pieces go out, and what the other end has received. */
async function connect() {
  const received: string[] = []
  const server = createServer((socket) => socket.on('data', (bytes) => received.push(bytes.toString())))
  await once(server.listen(0, '127.0.0.1'), 'listening')
  const address = server.address()
  if (address === null || typeof address === 'string') throw new Error('a TCP server has an address')
  const socket = createGatheringSocket()
  await once(socket.connect(address.port, '127.0.0.1'), 'connect')
  const sent = countSends(socket)
  onTestFinished(() => {
    socket.destroy()
    server.close()
  })
  return { socket, received, sent }
}

function countSends(socket: Socket): string[] {
  const sent: string[] = []
  const { _write, _writev } = socket
  socket._write = (chunk, ...rest) => {
    sent.push(String(chunk))
    return _write.call(socket, chunk, ...rest)
  }
  socket._writev = (chunks, callback) => {
    sent.push(chunks.map(({ chunk }) => String(chunk)).join(''))
    return _writev?.call(socket, chunks, callback)
  }
  return sent
}

test('writes of one turn are sent in one piece, even across promises and around cork calls by others', async () => {
  const { socket, received, sent } = await connect()
  socket.write('BEGIN;')
  socket.cork()
  socket.write('parse;')
  socket.write('bind;')
  socket.uncork()
  await Promise.resolve()
  socket.write('COMMIT;')
  await setImmediate() // before any timer
  expect(sent).toEqual(['BEGIN;parse;bind;COMMIT;'])
  socket.write('later;')
  socket.write('too')
  await expect.poll(() => received.join('')).toBe('BEGIN;parse;bind;COMMIT;later;too')
  expect(sent).toEqual(['BEGIN;parse;bind;COMMIT;', 'later;too'])
})

test('data written right before the end arrives', async () => {
  const { socket, received } = await connect()
  socket.write('terminate')
  socket.end()
  await expect.poll(() => received.join('')).toBe('terminate')
})

test('a connection that is destroyed with writes pending just ends', async () => {
  const { socket } = await connect()
  const failure = new Promise((resolve) => socket.once('error', resolve))
  socket.write('never sent')
  socket.destroy(new Error('cut'))
  expect(await failure).toMatchObject({ message: 'cut' })
  await sleep(20)
})
