// An answer sent as a whole equals what node:http would have sent, comes in order, and is sent no faster than it is read.
import { once } from 'node:events'
import { createServer } from 'node:http'
import net, { type AddressInfo } from 'node:net'
import { expect, onTestFinished, test, vi } from 'vitest'
import { API_HEADERS } from '../../gateway/envelope.js'
import { WholeResponse } from '../../gateway/whole-response.js'
import { AnswerWriter } from '../../gateway/write.js'

const KEEP_ALIVE_MS = 7_000
const MIB = 2 ** 20

type Handle = (response: WholeResponse, url: string) => void

/** A server that keeps its connections open, and a connection to it whose text is read in order; `another` makes more. */
async function connected(handle: Handle) {
  const server = createServer({ ServerResponse: WholeResponse, keepAliveTimeout: 0 }, (request, response) =>
    handle(response, request.url ?? ''),
  ).listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => {
    server.closeAllConnections()
    server.close()
  })
  const another = () => connectedTo((server.address() as AddressInfo).port)
  return { ...(await another()), another }
}

async function connectedTo(port: number) {
  const socket = net.connect(port, '127.0.0.1').setEncoding('latin1')
  await once(socket, 'connect')
  onTestFinished(() => void socket.destroy())
  let text = ''
  socket.on('data', (piece) => {
    text += String(piece).replace(/x{100,}/g, '')
  })
  return {
    socket,
    ask: (line: string, ...headers: string[]) => socket.write(`${[line, 'Host: x', ...headers].join('\r\n')}\r\n\r\n`),
    /** Returns what has arrived up to `end`, and consumes it. */
    async until(end: string): Promise<string> {
      await expect.poll(() => text.includes(end), { timeout: 5_000, interval: 5 }).toBe(true)
      const read = text
      text = ''
      return read
    },
  }
}

const writer = new AnswerWriter(new URL('https://auth.example.com'), KEEP_ALIVE_MS)
const write = (response: WholeResponse, body: string | readonly string[]) =>
  writer.write(response, { status: 200, headers: API_HEADERS, body, encoding: 'latin1', outcome: 'ok' })

function usually(response: WholeResponse): WholeResponse {
  return Object.defineProperty(response, 'canBeWhole', { value: false })
}

test.each([
  ['as one text', '{"nickname":"\xc3\xa9\xc3\xa8"}end'],
  ['in pieces', ['{"pages":', '\xc3\xa9\xc3\xa8'.repeat(100_000), '}end']],
])('an answer sent whole, %s, is byte for byte what node:http sends', async (_, body) => {
  const whole: boolean[] = []
  const { ask, until } = await connected((response, url) => {
    whole.push(response.canBeWhole)
    write(url === '/usual' ? usually(response) : response, body)
  })
  const both: string[] = []
  do {
    both.length = 0
    for (const url of ['/usual', '/whole']) {
      ask(`GET ${url} HTTP/1.1`)
      both.push(await until('end'))
    }
  } while (both.some((text) => !text.includes(`Date: ${/Date: (.*)/.exec(both[0] ?? '')?.[1]}`))) // the next second began
  expect(whole).not.toContain(false)
  expect(both[1]).toBe(both[0])
  expect(both[1]).toMatch(/\r\nkeep-alive: timeout=7\r\nDate: .*\r\nConnection: keep-alive\r\n\r\n/)
})

test('an answer sent whole has the Date of the second it is sent in, even when the clock was set back', async () => {
  const clock = vi.spyOn(Date, 'now')
  onTestFinished(() => void clock.mockRestore())
  const startedMs = Date.UTC(2030, 0, 1)
  const { ask, until } = await connected((response) => {
    write(response, 'end')
  })
  for (const ms of [500, 999, 1_000, 1_999, 60_000, -3_600_000]) {
    clock.mockReturnValue(startedMs + ms)
    ask('GET / HTTP/1.1')
    expect(await until('end')).toContain(`\r\nDate: ${new Date(startedMs + ms).toUTCString()}\r\n`)
  }
})

test.each([
  ['HEAD / HTTP/1.1', []],
  ['GET / HTTP/1.1', ['Connection: close']],
  ['GET / HTTP/1.0', []],
])('%s %j is left to node:http', async (line, headers) => {
  const whole: boolean[] = []
  const { ask, until } = await connected((response) => {
    whole.push(response.canBeWhole)
    write(response, 'body')
  })
  ask(line, ...headers)
  expect(await until('\r\n\r\n')).toContain('content-length: 4\r\n')
  expect(whole).toEqual([false])
})

test('pipelined requests are answered in order, whichever answer is ready first', async () => {
  const { socket, until } = await connected((response, url) => {
    const n = Number(url.slice(1))
    const answer = () => write(n % 3 === 0 ? usually(response) : response, `${n};`)
    if (n % 2 === 0) answer()
    else setTimeout(answer, n % 7)
  })
  socket.write(Array.from({ length: 60 }, (_, n) => `GET /${n} HTTP/1.1\r\nHost: x\r\n\r\n`).join(''))
  const numbers = [...(await until('59;')).matchAll(/^(\d+);/gm)].map(([, n]) => Number(n))
  expect(numbers).toEqual(Array.from({ length: 60 }, (_, n) => n))
})

test('of answers ready in the same turn the first is sent at once, and the others together at its end', async () => {
  const events: string[] = []
  const waiting: WholeResponse[] = []
  const connections = await connected((response) => {
    const { socket } = response
    if (!socket) throw new Error('no socket')
    const write = socket.write.bind(socket) as (...args: unknown[]) => boolean
    const n = waiting.push(response)
    socket.write = (...args: unknown[]) => {
      events.push(`sent ${n}`)
      return write(...args)
    }
  })
  const others = await Promise.all([connections.another(), connections.another()])
  for (const { ask } of [connections, ...others]) ask('GET / HTTP/1.1')
  await expect.poll(() => waiting.length, { interval: 5 }).toBe(3)
  await Promise.all(
    waiting.map(async (response, at) => {
      await Promise.resolve()
      write(response, 'end')
      events.push(`ready ${at + 1}`)
      expect(response.writableEnded).toBe(true)
    }),
  )
  for (const { until } of [connections, ...others]) await until('end')
  expect(events).toEqual(['sent 1', 'ready 1', 'ready 2', 'ready 3', 'sent 2', 'sent 3'])
})

test('an answer that waits to be sent with others does no harm when its connection is gone', async () => {
  const waiting: WholeResponse[] = []
  const first = await connected((response) => {
    waiting.push(response)
  })
  const others = await Promise.all([first.another(), first.another()])
  for (const { ask } of [first, ...others]) ask('GET / HTTP/1.1')
  await expect.poll(() => waiting.length, { interval: 5 }).toBe(3)
  for (const response of waiting) write(response, 'end')
  waiting[1]?.socket?.destroy()
  const closed = waiting.map((response) => once(response, 'close'))
  await first.until('end')
  await others[1]?.until('end')
  await Promise.all(closed)
})

test('a client that does not read gets no more answers until it reads, and then gets them all', async () => {
  let answered = 0
  const { socket, until } = await connected((response) => {
    answered += 1
    write(response, `${'x'.repeat(MIB)}end of ${answered};`)
  })
  socket.pause()
  for (let n = 0; n < 80; n++) {
    socket.write('GET / HTTP/1.1\r\nHost: x\r\n\r\n')
    await new Promise((resolve) => setTimeout(resolve, 5))
  }
  expect(answered).toBeLessThan(60) // the kernel's buffers may take 36 MiB, by tcp_rmem and tcp_wmem
  socket.resume()
  expect([...(await until('end of 80;')).matchAll(/end of (\d+);/g)].map(([, n]) => Number(n))).toHaveLength(80)
})

test('an answer is not finished before the kernel has taken it, and is closed unfinished when its reader goes', async () => {
  const events: string[] = []
  const { ask, socket } = await connected((response) => {
    response.on('finish', () => events.push('finish')).on('close', () => events.push('close'))
    write(response, 'x'.repeat(32 * MIB))
    events.push('written')
  })
  socket.pause()
  ask('GET / HTTP/1.1')
  await expect.poll(() => events, { interval: 5 }).toEqual(['written'])
  await new Promise((resolve) => setTimeout(resolve, 50))
  expect(events).toEqual(['written'])
  socket.destroy()
  await expect.poll(() => events.at(-1), { interval: 5 }).toBe('close')
  expect(events).toEqual(['written', 'close'])
})
