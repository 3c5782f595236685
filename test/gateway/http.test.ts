import { EventEmitter, once } from 'node:events'
import net from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { create } from '@bufbuild/protobuf'
import { Code, ConnectError } from '@connectrpc/connect'
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import { routes } from '../../gateway/routes.js'
import { ErrorInfoSchema } from '../../gen/google/rpc/error_details_pb.js'
import { ErrorReason } from '../../gen/surveyauth/v1/error_pb.js'
import { GetAuthorizedUserRequestSchema } from '../../gen/surveyauth/v1/token_service_pb.js'
import {
  defaultLimits,
  type GatewaySettings,
  type RunningGateway,
  refusal,
  sendRaw,
  startGateway,
} from './start-gateway.js'

const USER = '/api/oauth2/user?appid=app&access_token=tok&openid=oid'
const services = { GetAuthorizedUser: () => ({ openid: 'oid', nickname: '小明', avatar: '' }) }

const A_LATER_REASON = 9_999 as ErrorReason

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/

async function failureOf(response: Response): Promise<[number, string, string]> {
  const body = (await response.json()) as Record<string, never>
  expect(Object.keys(body)).toEqual(['code', 'error', 'data', 'request_id'])
  expect(Object.keys(body.error ?? {})).toEqual(['type', 'message', 'action'])
  expect(body.data).toEqual({})
  expect(body.request_id).toMatch(UUID)
  expectApiHeaders(response.headers)
  const { code, error } = body as unknown as { code: string; error: { type: string } }
  return [response.status, code, error.type]
}

function expectApiHeaders(headers: Headers): void {
  expect(headers.get('content-type')).toBe('application/json; charset=utf-8')
  expect(headers.get('cache-control')).toBe('no-store')
  expect(headers.get('x-content-type-options')).toBe('nosniff')
  expect(headers.get('referrer-policy')).toBe('same-origin')
  expect(headers.get('content-security-policy')).toBe("default-src 'none'; frame-ancestors 'none'")
  for (const name of ['etag', 'server', 'x-powered-by', 'access-control-allow-origin', 'set-cookie']) {
    expect(headers.has(name), name).toBe(false)
  }
}

/** The status, headers and failure of a raw answer. */
async function rawFailure(raw: string): Promise<[number, string, string]> {
  const [head = '', body = ''] = raw.split('\r\n\r\n')
  const [statusLine = '', ...lines] = head.split('\r\n')
  const headers = new Headers(lines.map((line) => line.split(/: (.*)/s).slice(0, 2) as [string, string]))
  const status = Number(statusLine.split(' ')[1])
  return failureOf(new Response(body, { status, headers }))
}

async function withGateway<T>(settings: GatewaySettings, use: (gateway: RunningGateway) => Promise<T>): Promise<T> {
  await using gateway = await startGateway({ services, ...settings })
  return await use(gateway)
}

describe('an answer', () => {
  test('is exactly the envelope, with a fresh UUID that the services and the log see too', () =>
    withGateway({}, async (gateway) => {
      const response = await fetch(gateway.url + USER)
      expect(response.status).toBe(200)
      expectApiHeaders(response.headers)
      const text = await response.text()
      const id = JSON.parse(text).request_id
      expect(id).toMatch(UUID)
      const data = '{"openid":"oid","nickname":"小明","avatar":""}'
      expect(text).toBe(`{"code":"OK","error":{"type":""},"data":${data},"request_id":"${id}"}`)
      expect(gateway.calls).toEqual([
        {
          method: 'GetAuthorizedUser',
          request: create(GetAuthorizedUserRequestSchema, { appid: 'app', accessToken: 'tok', openid: 'oid' }),
          requestId: id,
        },
      ])
      expect(gateway.records).toEqual([
        {
          route: 'user',
          method: 'GET',
          status: 200,
          durationMs: expect.any(Number),
          requestId: id,
          outcome: 'ok',
          appid: undefined, // 'app' is not well-formed
        },
      ])
    }))
})

describe('paths', () => {
  test.each(['/api', '/api/oauth2/%75ser', '/api/%2e/oauth2/user', '/api/oauth2/user%3Fappid=app'])(
    '%s is not served, and answers even a browser with no_route',
    (path) =>
      withGateway({}, async (gateway) => {
        const head = `GET ${path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nAccept: text/html\r\n\r\n`
        const raw = await sendRaw(gateway.port, head)
        expect(await rawFailure(raw)).toEqual([404, 'NoRoute', 'no_route'])
        expect(gateway.calls).toEqual([])
      }),
  )

  describe.each(['//api/oauth2/user', '/API/oauth2/user', '/nowhere', '/connect/nowhere', '*'])('%s', (path) => {
    const ask = (gateway: { readonly port: number }, accept: string) =>
      sendRaw(gateway.port, `GET ${path} HTTP/1.1\r\nHost: a\r\n${accept}Connection: close\r\n\r\n`)

    test('gives a browser a page', () =>
      withGateway({}, async (gateway) => {
        const raw = await ask(gateway, 'Accept: text/html,*/*;q=0.8\r\n')
        expect(raw).toMatch(/^HTTP\/1\.1 404 /)
        expect(raw).toMatch(/content-type: text\/html/)
        expect(raw.match(/x-content-type-options/gi)).toHaveLength(1)
        expect(raw).not.toContain('Try again<')
      }))

    test.each(['', 'Accept: */*\r\n', 'Accept: application/json\r\n'])('gives a program no_route: %j', (accept) =>
      withGateway({}, async (gateway) => {
        expect(await rawFailure(await ask(gateway, accept))).toEqual([404, 'NoRoute', 'no_route'])
      }),
    )
  })

  const page = '/connect/oauth2/authorize'
  const form = (type: string, length: number) =>
    `POST ${page} HTTP/1.1\r\nContent-Type: ${type}\r\nContent-Length: ${length}\r\n`
  test.each([
    [405, `DELETE ${page} HTTP/1.1\r\n`, ''],
    [413, form('application/x-www-form-urlencoded', 20_000), 'x'.repeat(20_000)],
    [414, `GET ${page}?${'a'.repeat(9_000)} HTTP/1.1\r\n`, ''],
    [415, form('application/json', 2), '{}'],
    [431, `GET ${page} HTTP/1.1\r\nX-Large: ${'a'.repeat(17_000)}\r\n`, ''],
  ])('a %i of a page is a page for a browser and in the envelope for a program', (status, head, body) =>
    withGateway({}, async ({ port }) => {
      const ask = (accept: string) => sendRaw(port, `${head}Host: a\r\n${accept}Connection: close\r\n\r\n`, body)
      const browser = await ask('Accept: text/html,*/*;q=0.8\r\n')
      expect(browser).toMatch(new RegExp(`^HTTP/1\\.1 ${status} (.+\r\n)*content-type: text/html`, 'i'))
      for (const accept of ['', 'Accept: */*\r\n']) expect((await rawFailure(await ask(accept)))[0]).toBe(status)
    }),
  )

  test.each(['http://elsewhere.example', 'HTTPS://user@elsewhere.example:1'])(
    'a request target in absolute form under %s is served',
    (host) =>
      withGateway({}, async (gateway) => {
        const raw = await sendRaw(gateway.port, `GET ${host}${USER} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n`)
        expect(raw).toMatch(/^HTTP\/1\.1 200 /)
      }),
  )
})

describe('sizes', () => {
  const request = (target: string, headers = '') =>
    `GET ${target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n${headers}\r\n`

  describe('beyond the number of headers that node:http keeps by default', () => {
    const many = 'a:b\r\n'.repeat(1_100)

    test.each([
      ['headers over the limit', 'abc:0123\r\n'.repeat(1_200), '', 431],
      ['a second Host header', 'Host: b\r\n', '', 400],
      ['a body over the limit', 'Content-Length: 20000\r\n', 'x'.repeat(20_000), 413],
    ])('the gateway still notices %s', (_what, headers, body, status) =>
      withGateway({}, async (gateway) => {
        const raw = await sendRaw(gateway.port, request(USER, many + headers) + body)
        expect(await rawFailure(raw)).toEqual([status, 'InvalidArgument', 'invalid_argument'])
        expect(gateway.calls).toEqual([])
      }),
    )
  })
})

describe('malformed HTTP', () => {
  test.each([
    ['no HTTP at all', 'hello\r\n\r\n'],
    ['two Hosts', `GET ${USER} HTTP/1.1\r\nHost: a\r\nhost: b\r\nConnection: close\r\n\r\n`],
    ['two Hosts in HTTP/1.0', `GET ${USER} HTTP/1.0\r\nHost: a\r\nhost: b\r\n\r\n`],
    ['a header without a name', 'GET /api/ HTTP/1.1\r\nHost: a\r\n: b\r\n\r\n'],
  ])('%s is answered 400 in the envelope', (_name, bytes) =>
    withGateway({}, async (gateway) => {
      const raw = await sendRaw(gateway.port, bytes)
      expect(await rawFailure(raw)).toEqual([400, 'InvalidArgument', 'invalid_argument'])
      expect(raw).toMatch(/^connection: close\r$/im)
      expect(raw).toMatch(/^date: \w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT\r$/im)
      expect(gateway.calls).toEqual([])
      expect(gateway.records.map(({ status, outcome }) => [status, outcome])).toEqual([[400, 'invalid_argument']])
    }),
  )

  test('a request cut short by a connection reset is not logged', () =>
    withGateway({}, async (gateway) => {
      const accepted = once(gateway.server, 'connection')
      const client = net.connect(gateway.port, '127.0.0.1')
      client.write('GET /api/surveys HTTP/1.1\r\nHost: a\r\n')
      const [socket] = (await accepted) as [net.Socket]
      await vi.waitUntil(() => socket.bytesRead > 0)
      client.resetAndDestroy()
      await new Promise((resolve) => socket.once('close', resolve))
      expect(gateway.records).toEqual([])
    }))

  test('after a malformed request the connection is closed soon, even if the client keeps its side open', () =>
    withGateway({ limits: { headersTimeoutMs: 300_000, requestTimeoutMs: 300_000 } }, async (gateway) => {
      const accepted = once(gateway.server, 'connection')
      const client = net.connect({ port: gateway.port, host: '127.0.0.1', allowHalfOpen: true })
      client.on('error', () => undefined).resume()
      client.write('hello\r\n\r\n')
      const [socket] = (await accepted) as [net.Socket]
      await once(socket, 'close')
      client.destroy()
    }))

  test('a client that goes on sending after a malformed request has time to read the answer before it is reset', () =>
    withGateway({}, async (gateway) => {
      const accepted = once(gateway.server, 'connection')
      const client = net.connect({ port: gateway.port, host: '127.0.0.1', allowHalfOpen: true })
      client.on('error', () => undefined)
      const [socket] = (await accepted) as [net.Socket]
      let endedAt = 0
      const end = vi.spyOn(socket, 'end').mockImplementation((...args) => {
        endedAt = performance.now()
        return net.Socket.prototype.end.apply(socket, args as never)
      })
      const closed = once(socket, 'close')
      client.write('hello\r\n\r\n')
      await once(client, 'data')
      const sending = setInterval(() => client.write('and more'), 10)
      await closed
      clearInterval(sending)
      client.destroy()
      expect(end).toHaveBeenCalledTimes(1)
      expect(performance.now() - endedAt).toBeGreaterThan(240)
    }))

  test.each([
    [
      'a body that is none',
      'POST /connect/sign-in HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n',
      ['HTTP/1.1 400'],
    ],
    ['garbage', 'garbage\r\n\r\n', []],
  ])('%s behind two requests takes no answer from them, also from the one that has not begun', (_name, bytes, own) => {
    const slowly = { GetAuthorizedUser: () => sleep(100, services.GetAuthorizedUser()) }
    return withGateway({ services: slowly }, async (gateway) => {
      const client = net.connect({ port: gateway.port, host: '127.0.0.1', noDelay: true }).setEncoding('latin1')
      client.write(`GET ${USER} HTTP/1.1\r\nHost: a\r\n\r\nGET /api/none HTTP/1.1\r\nHost: a\r\n\r\n`)
      await vi.waitUntil(() => gateway.calls.length === 1)
      client.write(bytes)
      let raw = ''
      for await (const data of client) raw += data
      expect(raw.match(/HTTP\/1\.1 \d{3}/g)).toEqual(['HTTP/1.1 200', 'HTTP/1.1 404', ...own])
    })
  })

  test.each([
    ['GET /api/surveys', 'Transfer-Encoding: chunked', 'ZZ\r\n'],
    ['POST /connect/sign-in', 'Transfer-Encoding: chunked', 'ZZ\r\n'],
  ])(
    'a request with a malformed body does not replace the answer to the request before it: %s, %s',
    (line, header, body) => {
      const slowly = { GetAuthorizedUser: () => sleep(50, services.GetAuthorizedUser()) }
      const limits = { headersTimeoutMs: 100, requestTimeoutMs: 100 }
      return withGateway({ services: slowly, limits }, async (gateway) => {
        const get = `GET ${USER} HTTP/1.1\r\nHost: a\r\n\r\n`
        const raw = await sendRaw(gateway.port, `${get}${line} HTTP/1.1\r\nHost: a\r\n${header}\r\n\r\n${body}`)
        expect(raw.match(/HTTP\/1\.1 \d+/g)?.[0]).toBe('HTTP/1.1 200')
        expect(gateway.calls).toHaveLength(1)
      })
    },
  )

  test.each([
    ['HTTP/1.0', `GET ${USER} HTTP/1.0\r\n\r\n`, 1],
    ['HTTP/1.1', `GET ${USER} HTTP/1.1\r\nHost: a\r\n\r\n`, 1],
    ['two requests', `GET ${USER} HTTP/1.1\r\nHost: a\r\n\r\n`.repeat(2), 2],
  ])('a client that closes its side after its last request gets every answer (%s)', (_name, bytes, answers) => {
    const slowly = { GetAuthorizedUser: () => sleep(50, services.GetAuthorizedUser()) }
    return withGateway({ services: slowly }, async (gateway) => {
      const client = net.connect({ port: gateway.port, host: '127.0.0.1', allowHalfOpen: true }).setEncoding('latin1')
      client.end(bytes)
      let raw = ''
      for await (const data of client) raw += data
      expect(raw.match(/HTTP\/1\.1 200/g)).toHaveLength(answers)
    })
  })

  test('a client that closes its side before an exchange begins gets an answer, but no tokens', () =>
    withGateway({ services: { ExchangeCode: () => ({}) } }, async (gateway) => {
      const query = 'appid=app&secret=s&code=c&grant_type=authorization_code'
      const client = net.connect({ port: gateway.port, host: '127.0.0.1', allowHalfOpen: true }).setEncoding('latin1')
      client.end(`GET /api/oauth2/access_token?${query} HTTP/1.1\r\nHost: a\r\n\r\n`)
      let raw = ''
      for await (const data of client) raw += data
      expect(await rawFailure(raw)).toEqual([400, 'InvalidArgument', 'invalid_argument'])
      expect(gateway.calls).toEqual([])
    }))

  test.each([
    ['headers', { headersTimeoutMs: 300, requestTimeoutMs: 300_000 }, 'GET /api/surveys HTTP/1.1\r\nHost: a\r\n'],
    [
      'body',
      { headersTimeoutMs: 300, requestTimeoutMs: 600 },
      'POST /connect/sign-in HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nuser',
    ],
  ])('a request whose %s does not arrive in time is answered 408, and recorded once', (what, limits, bytes) =>
    withGateway({ limits }, async (gateway) => {
      expect(await rawFailure(await sendRaw(gateway.port, bytes))).toEqual([408, 'InvalidArgument', 'invalid_argument'])
      await sleep(100)
      const route = what === 'body' ? 'sign_in' : 'none'
      expect(gateway.records).toMatchObject([{ route, status: 408, outcome: 'invalid_argument' }])
    }),
  )

  test.concurrent('a connection that is idle for the keep-alive time is closed, and a busy one is kept open', () =>
    withGateway({ limits: { keepAliveTimeoutMs: 2_000 } }, async (gateway) => {
      expect(gateway.server.keepAliveTimeout).toBe(0) // node:http would close idle connections after 5 s
      const startedAt = performance.now()
      const busy = net.connect(gateway.port, '127.0.0.1')
      const asking = setInterval(() => busy.write(`GET ${USER} HTTP/1.1\r\nHost: a\r\n\r\n`), 250)
      let answers = 0
      busy.on('data', () => {
        answers += 1
      })
      const raw = await sendRaw(gateway.port, `GET ${USER} HTTP/1.1\r\nHost: a\r\n\r\n`)
      const idleMs = performance.now() - startedAt
      expect(raw).toMatch(/^HTTP\/1\.1 200 /)
      expect(idleMs).toBeGreaterThan(2_000)
      await vi.waitUntil(() => answers > 18, 20_000)
      clearInterval(asking)
      await once(busy.resume(), 'close')
    }))

  /** A connection that has had its first answer. */
  async function answeredOnce(port: number) {
    const client = net.connect(port, '127.0.0.1').setEncoding('latin1')
    let received = ''
    client.on('data', (text) => {
      received += text
    })
    const answers = () => received.match(/"OK"/g)?.length
    const request = `GET ${USER} HTTP/1.1\r\nHost: a\r\n\r\n`
    client.write(request)
    await vi.waitUntil(() => answers() === 1, 5_000)
    return { client, request, answers }
  }

  test.concurrent('a connection whose next request has begun to arrive is not idle', () =>
    withGateway({ limits: { keepAliveTimeoutMs: 1_500 } }, async (gateway) => {
      const { client, request, answers } = await answeredOnce(gateway.port)
      for (let at = 0; at < request.length; at += 6) {
        client.write(request.slice(at, at + 6))
        await sleep(300)
      }
      await vi.waitUntil(() => answers() === 2, 5_000)
      client.destroy()
    }))

  test.concurrent('a connection whose pipelined answers waited for one another is idle once they are sent', () => {
    const slow = { GetAuthorizedUser: () => sleep(50, services.GetAuthorizedUser()) }
    return withGateway({ services: slow, limits: { keepAliveTimeoutMs: 1 } }, async ({ port }) => {
      const get = (target: string) => `GET ${target} HTTP/1.1\r\nHost: a\r\n\r\n`
      const raw = await sendRaw(port, get(USER) + get('/api/none') + get('/api/none'))
      expect(raw.match(/HTTP\/1\.1 \d{3}/g)).toEqual(['HTTP/1.1 200', 'HTTP/1.1 404', 'HTTP/1.1 404'])
    })
  })

  test.concurrent('an idle connection is closed even if the client keeps its side open', () =>
    withGateway({ limits: { keepAliveTimeoutMs: 1 } }, async (gateway) => {
      const accepted = once(gateway.server, 'connection')
      const client = net.connect({ port: gateway.port, host: '127.0.0.1', allowHalfOpen: true })
      client.on('error', () => undefined).resume()
      client.write(`GET ${USER} HTTP/1.1\r\nHost: a\r\n\r\n`)
      const [socket] = (await accepted) as [net.Socket]
      await once(socket, 'close')
      client.destroy()
    }))

  describe('when an answer is larger than the kernel buffers', () => {
    const nickname = 'x'.repeat(40 * 1024 * 1024)
    const large = { GetAuthorizedUser: () => ({ openid: 'oid', nickname, avatar: '' }) }
    const limits = { keepAliveTimeoutMs: 1_000 }

    test('a client that reads nothing for the keep-alive time is cut off', () =>
      withGateway({ services: large, limits }, async (gateway) => {
        const accepted = once(gateway.server, 'connection')
        const client = net.connect(gateway.port, '127.0.0.1').pause()
        client.on('error', () => undefined).write(`GET ${USER} HTTP/1.1\r\nHost: a\r\n\r\n`)
        const [socket] = (await accepted) as [net.Socket]
        await once(socket, 'close')
        expect(socket.bytesWritten).toBeGreaterThan(nickname.length)
        client.destroy()
      }))

    test('of clients that do not read, the first are cut off, and counted, before their answers fill the memory', () => {
      const onDropped = vi.fn()
      return withGateway({ services: large, onDropped }, async (gateway) => {
        const request = `GET ${USER} HTTP/1.1\r\nHost: a\r\n\r\n`
        const sockets: net.Socket[] = []
        gateway.server.on('connection', (socket: net.Socket) => sockets.push(socket))
        const clients: net.Socket[] = []
        for (let n = 1; n <= 8; n++) {
          const client = net.connect(gateway.port, '127.0.0.1').pause()
          client.on('error', () => undefined).write(request.repeat(3))
          clients.push(client)
          await vi.waitUntil(() => gateway.records.length === n, 20_000)
        }
        const unread = () => sockets.reduce((sum, { writableLength }) => sum + writableLength, 0)
        await vi.waitUntil(() => unread() <= 256 * 2 ** 20, 20_000)
        const dropped = onDropped.mock.calls.length
        expect(dropped).toBeGreaterThan(0)
        expect(sockets.map(({ destroyed }) => destroyed)).toEqual(sockets.map((_, at) => at < dropped))
        let bytes = 0
        const last = clients.at(-1)?.on('data', (chunk) => {
          bytes += chunk.length
        })
        last?.resume()
        await vi.waitUntil(() => bytes > nickname.length, 20_000)
        for (const client of clients) client.destroy()
      })
    })

    test('a client that reads a little now and then is not cut off', () =>
      withGateway({ services: large, limits }, async (gateway) => {
        const client = net.connect(gateway.port, '127.0.0.1')
        const request = `GET ${USER} HTTP/1.1\r\nHost: a\r\n\r\n`
        let bytes = 0
        const pauses = (chunk: Buffer) => {
          const paused = Math.floor(bytes / 2 ** 22)
          bytes += chunk.length
          if (Math.floor(bytes / 2 ** 22) > paused) client.pause()
        }
        client.on('data', pauses)
        const resuming = setInterval(() => client.resume(), 500)
        client.write(request)
        await vi.waitUntil(() => bytes > nickname.length, 25_000)
        clearInterval(resuming)
        client.destroy()
      }))
  })
})

describe('a body', () => {
  const smuggled = `GET ${USER} HTTP/1.1\r\nHost: a\r\n\r\n`

  test('of a GET is drained and never read as the next request', () =>
    withGateway({}, async (gateway) => {
      const first = `GET ${USER} HTTP/1.1\r\nHost: a\r\nContent-Length: ${smuggled.length}\r\n\r\n${smuggled}`
      const raw = await sendRaw(gateway.port, first, `GET /api/last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n`)
      expect(raw.match(/HTTP\/1\.1 \d+/g)).toEqual(['HTTP/1.1 200', 'HTTP/1.1 404'])
      expect(gateway.calls).toHaveLength(1)
    }))

  test('of a request to an unknown path is read to its end, and the connection stays open', () =>
    withGateway({}, async (gateway) => {
      const client = net.connect(gateway.port, '127.0.0.1').setEncoding('latin1')
      client.write(`POST /api/nowhere HTTP/1.1\r\nHost: a\r\nContent-Length: ${smuggled.length}\r\n\r\n`)
      await sleep(50)
      client.end(`${smuggled}GET ${USER} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n`)
      let raw = ''
      for await (const data of client) raw += data
      expect(raw.match(/HTTP\/1\.1 \d+/g)).toEqual(['HTTP/1.1 404', 'HTTP/1.1 200'])
    }))

  test.each([
    ['announced', 'Content-Length: 20000\r\n\r\n', 'x'.repeat(20_000)],
    ['chunked', 'Transfer-Encoding: chunked\r\n\r\n', `4e20\r\n${'x'.repeat(20_000)}\r\n0\r\n\r\n`],
    ['of 2 MiB', `Content-Length: ${2 ** 21}\r\n\r\n`, 'x'],
    ['announced and not sent', 'Content-Length: 20000\r\n\r\n', 'x'],
    ['chunked and not sent to its end', 'Transfer-Encoding: chunked\r\n\r\n', `4e20\r\n${'x'.repeat(20_000)}`],
    ['chunked and without an end', 'Transfer-Encoding: chunked\r\n\r\n', `200000\r\n${'x'.repeat(1_100_000)}`],
  ])('above 16 KiB, %s, is refused before anything is executed', (_name, headers, body) =>
    withGateway({}, async (gateway) => {
      const raw = await sendRaw(
        gateway.port,
        `GET ${USER} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n${headers}`,
        body,
      )
      expect(await rawFailure(raw)).toEqual([413, 'InvalidArgument', 'invalid_argument'])
      expect(gateway.calls).toEqual([])
    }),
  )

  test('that is too large to be read to its end closes the connection', () =>
    withGateway({}, async ({ port }) => {
      const head = `GET ${USER} HTTP/1.1\r\nHost: a\r\nContent-Length: ${2 ** 21}\r\n\r\n`
      expect(await sendRaw(port, head, smuggled)).toMatch(/^HTTP\/1\.1 413 (.+\r\n)*connection: close\r\n/i)
    }))

  test.each([
    [0, 200],
    [1, 413],
  ])('of %i bytes more than 16 KiB is answered %i', (more, status) =>
    withGateway({}, async (gateway) => {
      const body = 'x'.repeat(16_384 + more)
      const head = `GET ${USER} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: ${body.length}\r\n\r\n`
      expect(await sendRaw(gateway.port, head, body)).toMatch(new RegExp(`^HTTP/1\\.1 ${status} `))
    }),
  )

  const last = 'GET /api/last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n'

  test.each(['X-None: announced', 'Content-Length: 0'])('that is missing is not waited for (%s)', (header) =>
    withGateway({}, async (gateway) => {
      const form = `POST /connect/oauth2/authorize HTTP/1.1\r\nHost: a\r\n${header}\r\n\r\n`
      const raw = await sendRaw(gateway.port, form, `GET ${USER} HTTP/1.1\r\nHost: a\r\n${header}\r\n\r\n`, last)
      expect(raw.match(/HTTP\/1\.1 \d+/g)).toEqual(['HTTP/1.1 415', 'HTTP/1.1 200', 'HTTP/1.1 404'])
    }),
  )

  test('that its client breaks off ends the request with 400', () =>
    withGateway({}, async (gateway) => {
      const client = net.connect(gateway.port, '127.0.0.1')
      client.write('POST /connect/sign-in HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nusername=')
      client.end()
      const ofForm = () => gateway.records.find(({ route }) => route === 'sign_in')
      while (!ofForm()) await sleep(5)
      await sleep(50)
      expect(gateway.records.map(({ route, status }) => [route, status])).toEqual([['sign_in', 400]])
      client.destroy()
    }))

  test('with a Content-Encoding is not read as a form', () =>
    withGateway({}, async ({ url }) => {
      const headers = { 'content-type': 'application/x-www-form-urlencoded', 'content-encoding': 'identity' }
      expect((await fetch(`${url}/connect/sign-in`, { method: 'POST', headers, body: 'username=a' })).status).toBe(415)
    }))

  test.each(['Expect: 100-continue', 'Expect: miracles'])('that is absent despite %s changes nothing', (header) =>
    withGateway({}, async (gateway) => {
      const raw = await sendRaw(gateway.port, `GET ${USER} HTTP/1.1\r\nHost: a\r\n${header}\r\n\r\n`, last)
      expect(raw).toContain('HTTP/1.1 200 OK')
      expect(raw).toContain('HTTP/1.1 404')
    }),
  )

  test.each(['Upgrade: websocket\r\nConnection: Upgrade', 'Upgrade: h2c'])(
    'cannot switch protocols: %j is answered over HTTP/1.1, and the connection closes',
    (header) =>
      withGateway({}, async (gateway) => {
        const raw = await sendRaw(gateway.port, `GET ${USER} HTTP/1.1\r\nHost: a\r\n${header}\r\n\r\n`)
        expect(raw).toMatch(/^HTTP\/1\.1 200 OK/)
        expect(raw).toMatch(/connection: close/i)
      }),
  )
})

describe('failures of services', () => {
  test.each([
    [ErrorReason.INVALID_ARGUMENT, Code.InvalidArgument, 400, 'InvalidArgument', 'invalid_argument'],
    [ErrorReason.INVALID_APPID, Code.InvalidArgument, 400, 'InvalidArgument', 'invalid_appid'],
    [ErrorReason.INVALID_SECRET, Code.PermissionDenied, 401, 'PermissionDenied', 'invalid_secret'],
    [ErrorReason.INVALID_CODE, Code.InvalidArgument, 400, 'InvalidArgument', 'invalid_code'],
    [ErrorReason.INVALID_REFRESH_TOKEN, Code.PermissionDenied, 401, 'PermissionDenied', 'invalid_refresh_token'],
    [ErrorReason.INVALID_TOKEN, Code.PermissionDenied, 401, 'PermissionDenied', 'invalid_token'],
    [ErrorReason.CLAIM_ERROR, Code.PermissionDenied, 403, 'PermissionDenied', 'claim_error'],
    [ErrorReason.ANSWERS_NOT_GRANTED, Code.PermissionDenied, 403, 'PermissionDenied', 'answers_not_granted'],
    [ErrorReason.SURVEY_NOT_FOUND, Code.NotFound, 404, 'NotFound', 'survey_not_found'],
    [ErrorReason.RATE_LIMITED, Code.ResourceExhausted, 429, 'ResourceExhausted', 'request_rate_limited'],
    [ErrorReason.UNAVAILABLE, Code.Unavailable, 503, 'RemoteServerError', 'remote_server_error'],
    [ErrorReason.CALLER_NOT_ALLOWED, Code.PermissionDenied, 500, 'InternalServerError', 'internal_server_error'],
    [A_LATER_REASON, Code.InvalidArgument, 500, 'InternalServerError', 'internal_server_error'],
  ])('reason %i is answered as its row of the error table says', async (reason, code, status, envelopeCode, type) => {
    const failing = { GetAuthorizedUser: () => Promise.reject(refusal(reason, code)) }
    await withGateway({ services: failing }, async (gateway) => {
      const response = await fetch(gateway.url + USER)
      expect(response.headers.has('retry-after')).toBe(status === 429 || status === 503)
      expect(await failureOf(response)).toEqual([status, envelopeCode, type])
      expect(gateway.records.map((record) => record.outcome)).toEqual([type])
      expect(gateway.unexpected).toHaveLength(status === 500 ? 1 : 0)
    })
    await withGateway({ services: failing, httpErrorStatus: 200 }, async (gateway) => {
      const response = await fetch(gateway.url + USER)
      expect(response.status).toBe(status === 429 || status >= 500 ? status : 200)
    })
  })

  test.each([Code.Unavailable, Code.DeadlineExceeded])('code %i alone is remote_server_error', (code) =>
    withGateway(
      { services: { GetAuthorizedUser: () => Promise.reject(new ConnectError('down', code)) } },
      async ({ url }) => {
        const response = await fetch(url + USER)
        expect(response.headers.get('retry-after')).toBe('1')
        expect(await failureOf(response)).toEqual([503, 'RemoteServerError', 'remote_server_error'])
      },
    ),
  )

  test.each([
    [Code.PermissionDenied, 500, 'InternalServerError', 'internal_server_error'],
    [Code.Unavailable, 503, 'RemoteServerError', 'remote_server_error'],
  ])('a reason of another domain, a proxy for example, is not read: only code %i counts', async (code, ...failure) => {
    const error = new ConnectError('no', code, undefined, [
      { desc: ErrorInfoSchema, value: { reason: 'INVALID_TOKEN', domain: 'proxy.example' } },
    ])
    await withGateway({ services: { GetAuthorizedUser: () => Promise.reject(error) } }, async ({ url }) => {
      expect(await failureOf(await fetch(url + USER))).toEqual(failure)
    })
  })

  test.each([
    [ErrorReason.UNAVAILABLE, Code.Unavailable, 503],
    [ErrorReason.RATE_LIMITED, Code.ResourceExhausted, 429],
  ])('reason %i is answered with the Retry-After of the service, at least 1 s', async (reason, code, status) => {
    for (const [seconds, told] of [
      [0, '1'],
      [7, '7'],
    ] as const) {
      const failing = { GetAuthorizedUser: () => Promise.reject(refusal(reason, code, 'later', seconds)) }
      await withGateway({ services: failing }, async ({ url }) => {
        const response = await fetch(url + USER)
        expect([response.status, response.headers.get('retry-after')]).toEqual([status, told])
      })
    }
  })

  test.each([
    ['a service told of it, which has logged it', undefined, 0],
    ['it has a cause, which nobody has logged', new Error('no UTF-8'), 1],
  ])('an internal error is reported unless the service has already logged it: %s', (_what, cause, reports) => {
    const failure = new ConnectError('internal error', Code.Internal, undefined, undefined, cause)
    return withGateway({ services: { GetAuthorizedUser: () => Promise.reject(failure) } }, async (gateway) => {
      expect((await fetch(gateway.url + USER)).status).toBe(500)
      expect(gateway.unexpected).toHaveLength(reports)
    })
  })

  test('an unexpected error is reported once, with the request id, and the client is told no detail of it', () => {
    const bug = new Error('secret detail')
    const failing = { GetAuthorizedUser: () => Promise.reject(bug) }
    return withGateway({ services: failing }, async (gateway) => {
      const text = await (await fetch(gateway.url + USER)).text()
      expect(text).not.toContain('secret detail')
      expect(gateway.unexpected).toEqual([{ error: bug, requestId: JSON.parse(text).request_id }])
    })
  })

  test('a bug in the gateway itself is answered 500 and reported, and does not block draining', async () => {
    const bug = new Error('secret detail')
    const fail = () => {
      throw bug
    }
    await withGateway({ startSpan: fail }, async (gateway) => {
      const response = await fetch(gateway.url + USER)
      expect(await failureOf(response)).toEqual([500, 'InternalServerError', 'internal_server_error'])
      expect(gateway.unexpected.map(({ error }) => error)).toEqual([bug])
      await gateway.drain(120_000)
    })
  })

  test('a bug that shows after the answer is sent is reported and does no other harm', async () => {
    const onRequest = () => {
      throw new Error('a defect')
    }
    await withGateway({ onRequest }, async (gateway) => {
      for (const reports of [1, 2]) {
        expect((await fetch(gateway.url + USER)).status).toBe(200)
        await vi.waitUntil(() => gateway.unexpected.length === reports)
      }
    })
  })

  test.each([
    ['UTF-8', 'GET /api/surveys?title=\u4e2d'],
    ['UTF-8 in the path', 'GET /api/\u4e2d'],
    ['a space', 'GET /api/surveys?title=a b'],
    ['a control character', 'GET /api/surveys?title=a\u0001'],
    ['a tab', 'GET /api/surveys?title=a\tb'],
  ])('a URL with %s that is not percent-encoded is invalid_argument, with a message that says so', async (_, line) => {
    for (const [httpErrorStatus, status] of [
      ['semantic', 400],
      [200, 200],
    ] as const) {
      await withGateway({ httpErrorStatus }, async ({ port, records }) => {
        const raw = await sendRaw(port, `${line} HTTP/1.1\r\nHost: a\r\n\r\n`)
        expect(await rawFailure(raw)).toEqual([status, 'InvalidArgument', 'invalid_argument'])
        expect(raw).toContain('"message":"a character of the URL is not percent-encoded"')
        expect(records).toMatchObject([{ status, outcome: 'invalid_argument' }])
      })
    }
  })

  test('HTTP_ERROR_STATUS=200 keeps the status of unknown paths, methods and malformed HTTP', () =>
    withGateway({ httpErrorStatus: 200 }, async ({ url, port }) => {
      expect((await fetch(`${url}/api/nowhere`)).status).toBe(404)
      expect((await fetch(url + USER, { method: 'POST' })).status).toBe(405)
      expect((await fetch(`${url}/api/surveys?x=${'a'.repeat(9000)}`)).status).toBe(414)
      for (const bytes of ['hello\r\n\r\n', 'GET / HTTP/9.9\r\n\r\n', 'GET / HTTP/1.1\r\nbad header: x\r\n\r\n']) {
        const raw = await sendRaw(port, bytes)
        expect(await rawFailure(raw)).toEqual([400, 'InvalidArgument', 'invalid_argument'])
        expect(raw).toContain('the request is not valid HTTP')
      }
      expect(await sendRaw(port, `GET ${USER} HTTP/1.1\r\nConnection: close\r\n\r\n`)).toMatch(/^HTTP\/1\.1 400 /)
      expect((await fetch(`${url}/api/surveys`)).status).toBe(200)
    }))
})

describe('rates', () => {
  const rate = { requests: 3, seconds: 10 }
  const plenty = { requests: 1_000, seconds: 10 }
  const still = () => 1_000_000 // no window ends meanwhile
  const limits = (perSource = plenty, perApp = plenty) => ({
    rates: { ...defaultLimits.rates, api: { perSource, perApp } },
  })

  test('a source is refused beyond its rate, told when to retry, and admitted then', () => {
    let now = 1_000_000
    return withGateway({ limits: limits(rate), now: () => now }, async ({ url }) => {
      for (let n = 0; n < 3; n++) expect((await fetch(url + USER)).status).toBe(200)
      now += 2_500
      const refused = await fetch(url + USER)
      expect(refused.headers.get('retry-after')).toBe('8')
      const told = ['limit', 'remaining', 'reset'].map((name) => refused.headers.get(`ratelimit-${name}`))
      expect(told).toEqual(['3', '0', '8'])
      expect(await failureOf(refused)).toEqual([429, 'ResourceExhausted', 'request_rate_limited'])
      expect((await fetch(`${url}/api/nowhere`)).status).toBe(429)
      now += 7_500
      expect((await fetch(url + USER)).status).toBe(200)
    })
  })

  test('an app is refused beyond its rate on that route alone', () =>
    withGateway({ now: still, limits: limits(plenty, rate) }, async ({ url }) => {
      for (let n = 0; n < 3; n++) expect((await fetch(url + USER)).status).toBe(200)
      expect((await fetch(url + USER)).status).toBe(429)
      expect((await fetch(url + USER.replace('appid=app', 'appid=other'))).status).toBe(200)
      expect((await fetch(`${url}/api/surveys?appid=app`)).status).toBe(400)
    }))

  /** Statuses of five requests of an app that may make three, when a service refuses them all for this reason. */
  function refusedBeyondRate(name: string, method: string, reason: ErrorReason, code: Code): Promise<number[]> {
    const services = { [method]: () => Promise.reject(refusal(reason, code)) }
    const { path = '' } = routes.find((route) => route.name === name) ?? {}
    const grantType = name === 'refresh_token' ? name : 'authorization_code'
    const query = `appid=app&secret=s&code=c&grant_type=${grantType}&refresh_token=r&access_token=t&openid=o`
    return withGateway({ services, now: still, limits: limits(plenty, rate) }, async ({ url }) => {
      const statuses = []
      for (let n = 0; n < 5; n++) statuses.push((await fetch(`${url}${path.replaceAll(':id', '1')}?${query}`)).status)
      return statuses
    })
  }

  test.each([
    ['access_token', 'ExchangeCode', ErrorReason.INVALID_CODE, Code.InvalidArgument, 400],
    ['user', 'GetAuthorizedUser', ErrorReason.CLAIM_ERROR, Code.PermissionDenied, 403],
    ['surveys', 'ListSurveys', ErrorReason.CLAIM_ERROR, Code.PermissionDenied, 403],
    ['survey', 'GetSurvey', ErrorReason.SURVEY_NOT_FOUND, Code.NotFound, 404],
  ] as const)(
    'requests to %s that fail after valid credentials count towards the rate of their app: %s, reason %i',
    async (name, method, reason, code, status) => {
      expect(await refusedBeyondRate(name, method, reason, code)).toEqual([status, status, status, 429, 429])
    },
  )

  test.each([
    ['access_token', 'ExchangeCode', ErrorReason.INVALID_APPID, Code.InvalidArgument, 400],
    ['access_token', 'ExchangeCode', ErrorReason.INVALID_SECRET, Code.PermissionDenied, 401],
    ['access_token', 'ExchangeCode', ErrorReason.INVALID_ARGUMENT, Code.InvalidArgument, 400],
    ['refresh_token', 'RefreshAccessToken', ErrorReason.INVALID_REFRESH_TOKEN, Code.PermissionDenied, 401],
    ['user', 'GetAuthorizedUser', ErrorReason.INVALID_TOKEN, Code.PermissionDenied, 401],
    ['survey', 'GetSurvey', ErrorReason.INVALID_TOKEN, Code.PermissionDenied, 401],
    ['survey', 'GetSurvey', ErrorReason.UNAVAILABLE, Code.Unavailable, 503],
    ['survey', 'GetSurvey', ErrorReason.UNSPECIFIED, Code.Internal, 500],
  ] as const)(
    'requests to %s that anybody could have sent do not count towards the rate of the app: %s, reason %i',
    async (name, method, reason, code, status) => {
      expect(await refusedBeyondRate(name, method, reason, code)).toEqual(Array(5).fill(status))
    },
  )

  test('bad links to the authorization page do not count towards the rate of the app', () => {
    const failing = {
      CheckAuthorizationRequest: () => Promise.reject(refusal(ErrorReason.INVALID_REDIRECT_URI, Code.InvalidArgument)),
    }
    const rates = { ...defaultLimits.rates, page: { perSource: plenty, perApp: rate } }
    return withGateway({ services: failing, now: still, limits: { rates } }, async ({ url }) => {
      const link = `${url}/connect/oauth2/authorize?appid=app&redirect_uri=x&response_type=code&scope=s`
      for (let n = 0; n < 6; n++) expect((await fetch(link)).status).toBe(400)
    })
  })

  test('the authorization page counts for its app only with a user signed in, and the home page never does', () => {
    const check = { CheckAuthorizationRequest: () => ({ appName: 'App', refreshTokenTtlSeconds: 1 }) }
    const session = { GetSession: () => ({ username: 'ann', nickname: '' }), ListConnectedApps: () => ({ apps: [] }) }
    const rates = { ...defaultLimits.rates, page: { perSource: plenty, perApp: rate } }
    return withGateway({ services: { ...check, ...session }, now: still, limits: { rates } }, async ({ url }) => {
      const query = '?appid=app&redirect_uri=x&response_type=code&scope=s'
      const link = `${url}/connect/oauth2/authorize${query}`
      const headers = { cookie: `sa_session=${'s'.repeat(43)}` }
      for (let n = 0; n < 6; n++) expect((await fetch(link)).status).toBe(200)
      for (let n = 0; n < 6; n++) expect((await fetch(url + query, { headers })).status).toBe(200)
      const shown = []
      for (let n = 0; n < 5; n++) shown.push((await fetch(link, { headers })).status)
      expect(shown).toEqual([200, 200, 200, 429, 429])
    })
  })

  test('every route has a rate limit', async () => {
    const once = { perSource: { requests: 1, seconds: 10 }, perApp: plenty }
    for (const route of routes) {
      await withGateway({ limits: { rates: { api: once, page: once } }, now: () => 1_000_000 }, async ({ url }) => {
        const target = `${url}${route.path.replaceAll(':id', '1')}`
        const ask = async () => (await fetch(target, { method: route.method, redirect: 'manual' })).status
        const statuses = [await ask(), await ask()]
        expect({ route: route.name, isFirstRefused: statuses[0] === 429, second: statuses[1] }).toEqual({
          route: route.name,
          isFirstRefused: false,
          second: 429,
        })
      })
    }
  })

  test('an invalid X-Forwarded-For entry ends the search: entries before it are not trusted', async () => {
    const from = (forwarded: string) => ({ headers: { 'x-forwarded-for': forwarded } })
    await withGateway(
      { now: still, limits: limits(rate), trustedProxies: ['127.0.0.1', '10.9.9.9'] },
      async ({ url }) => {
        for (const what of ['unknown', '1.1.1.1:port', '[1.1.1.1'])
          await fetch(url + USER, from(`1.1.1.1, ${what}, 10.9.9.9`))
        expect((await fetch(url + USER, from('10.9.9.9'))).status).toBe(429)
        expect((await fetch(url + USER, from('1.1.1.1'))).status).toBe(200)
      },
    )
  })

  test.each([
    ['1.2.3.4:5678', '1.2.3.4', '1.2.3.5:5678'],
    ['[2001:db8::1]:443', '2001:db8::2', '[2001:db8:0:1::1]:443'],
    ['[2001:db8::1]', '2001:DB8::1', '[2001:db8:0:1::1]'],
    ['[::ffff:1.2.3.4]:5678', '1.2.3.4', '[::ffff:1.2.3.5]:5678'],
    ['1.2.3.4, 10.9.9.9:80', '1.2.3.4', '1.2.3.5, 10.9.9.9:80'],
  ])('an address in X-Forwarded-For may have brackets and a port: %s', async (withPort, same, another) => {
    const from = (forwarded: string) => ({ headers: { 'x-forwarded-for': forwarded } })
    const trustedProxies = ['127.0.0.1', '10.9.9.9']
    await withGateway({ now: still, limits: limits(rate), trustedProxies }, async ({ url }) => {
      for (let n = 0; n < 3; n++) await fetch(url + USER, from(withPort.replace('5678', `567${n}`)))
      expect((await fetch(url + USER, from(same))).status).toBe(429)
      expect((await fetch(url + USER, from(another))).status).toBe(200)
      expect((await fetch(url + USER)).status).toBe(200)
    })
  })

  test('every address in a trusted network is a proxy, and none outside', async () => {
    const trustedProxies = ['127.0.0.0/8', '10.1.0.0/16', '2001:db8::/32']
    const from = (forwarded: string) => ({ headers: { 'x-forwarded-for': forwarded } })
    await withGateway({ now: still, limits: limits(rate), trustedProxies }, async ({ url }) => {
      for (const proxy of ['10.1.0.1', '10.1.255.255', '2001:db8:1::1'])
        await fetch(url + USER, from(`1.1.1.1, ${proxy}`))
      expect((await fetch(url + USER, from('1.1.1.1'))).status).toBe(429)
      for (const client of ['10.2.0.1', '2001:db9::1', 'fe80::1%eth0']) {
        for (let n = 0; n < 3; n++) await fetch(url + USER, from(`9.9.9.${n}, ${client}`))
        expect((await fetch(url + USER, from(client))).status).toBe(429)
      }
    })
  })

  test('a refused page keeps its status, whatever HTTP_ERROR_STATUS says, and a 429 says when to retry', () => {
    const twice = { perSource: { requests: 2, seconds: 10 }, perApp: plenty }
    const settings = {
      limits: { rates: { api: twice, page: twice } },
      now: () => 1_000_000,
      httpErrorStatus: 200,
    } as const
    return withGateway(settings, async ({ url, port }) => {
      expect(await sendRaw(port, 'GET /connect/apps HTTP/1.1\r\nConnection: close\r\n\r\n')).toMatch(/^HTTP\/1\.1 400 /)
      expect((await fetch(`${url}/connect/apps`, { method: 'PUT' })).status).toBe(405)
      const refused = await fetch(`${url}/connect/apps`)
      expect(refused.status).toBe(429)
      expect(refused.headers.get('retry-after')).toBe('10')
      expect(refused.headers.get('content-type')).toMatch(/^text\/html/)
    })
  })

  test.each([
    ['a URL that is too long', `GET /api/surveys?${'a'.repeat(9_000)} HTTP/1.1\r\nHost: a\r\n`, 414],
    ['headers that are too large', `GET /api/surveys HTTP/1.1\r\nHost: a\r\nA: ${'a'.repeat(17_000)}\r\n`, 431],
    ['no Host', 'GET /api/surveys HTTP/1.1\r\n', 400],
  ])('a request that is refused for %s counts towards the rate too', (_, head, status) => {
    const once = { perSource: { requests: 1, seconds: 10 }, perApp: plenty }
    return withGateway({ limits: { rates: { api: once, page: once } }, now: () => 1_000_000 }, async ({ port }) => {
      for (const expected of [status, 429]) {
        expect(await sendRaw(port, `${head}Connection: close\r\n\r\n`)).toMatch(new RegExp(`^HTTP/1.1 ${expected} `))
      }
    })
  })

  test('a rate-limited page says how long to wait and links back to itself; a rate-limited form leads nowhere else', () => {
    const once = { perSource: { requests: 1, seconds: 10 }, perApp: plenty }
    return withGateway({ limits: { rates: { api: once, page: once } }, now: () => 1_000_000 }, async ({ url }) => {
      await fetch(url)
      const link = `${url}/connect/oauth2/authorize?appid=app`
      const page = await (await fetch(link)).text()
      expect(page).toContain('Please wait 10 seconds and try again.')
      expect(page).toContain('href="">Try again<')
      expect(await (await fetch(link, { method: 'POST' })).text()).not.toContain('class="button')
    })
  })

  test('an address in X-Forwarded-For is the same however it is written', async () => {
    const from = (forwarded: string) => ({ headers: { 'x-forwarded-for': forwarded } })
    await withGateway(
      { now: still, limits: limits(rate), trustedProxies: ['127.0.0.1', '2001:db8::1'] },
      async ({ url }) => {
        for (const proxy of ['2001:db8::1', '2001:DB8::1', '2001:0db8:0:0:0:0:0:1']) {
          await fetch(url + USER, from(`::FFFF:0a00:1, ${proxy}`))
        }
        expect((await fetch(url + USER, from('10.0.0.1'))).status).toBe(429)
      },
    )
  })
})

test('a draining gateway answers requests in flight, even after a second, closes their connections and takes no new ones', async () => {
  const slow = { GetAuthorizedUser: () => sleep(1_500, { openid: 'oid', nickname: '', avatar: '' }) }
  await withGateway({ services: slow }, async (gateway) => {
    const inFlight = fetch(gateway.url + USER)
    await sleep(100)
    const drained = gateway.drain(5_000)
    await sleep(50)
    await expect(fetch(gateway.url + USER)).rejects.toThrow()
    const response = await inFlight
    expect(response.status).toBe(200)
    expect(response.headers.get('connection')).toBe('close')
    expect(response.headers.has('keep-alive')).toBe(false)
    await drained
  })
})

test('a draining gateway still serves clients that connected before, and closes idle connections', () =>
  withGateway({ services }, async (gateway) => {
    const idle = net.connect(gateway.port, '127.0.0.1')
    const idleClosed = once(idle.resume(), 'close')
    idle.write(`GET ${USER} HTTP/1.1\r\nHost: a\r\n\r\n`)
    await once(idle, 'data')
    const late = net.connect(gateway.port, '127.0.0.1')
    await once(late, 'connect')
    await sleep(20) // accepted, not only queued

    const drained = gateway.drain(40_000)
    await sleep(200)
    late.write(`GET ${USER} HTTP/1.1\r\nHost: a\r\n\r\n`)
    const chunks: Buffer[] = []
    late.on('data', (chunk: Buffer) => chunks.push(chunk))
    const startedAt = performance.now()
    await Promise.all([once(late, 'end'), idleClosed, drained])
    expect(Buffer.concat(chunks).toString()).toMatch(/^HTTP\/1\.1 200 OK\r\n(.+\r\n)*connection: close\r\n/i)
    expect(performance.now() - startedAt).toBeLessThan(25_000) // answered and closed, not cut
  }))

test('a draining gateway does not wait for a client that never sends a request', () =>
  withGateway({ services }, async (gateway) => {
    const mute = net.connect(gateway.port, '127.0.0.1')
    await once(mute, 'connect')
    await sleep(20)
    const startedAt = performance.now()
    await Promise.all([once(mute.resume(), 'close'), gateway.drain(30_000)])
    expect(performance.now() - startedAt).toBeLessThan(20_000)
  }))

test('a draining gateway still serves connections that wait in the accept queue', () =>
  withGateway({ services }, async (gateway) => {
    const clients = Array.from({ length: 100 }, () => net.connect(gateway.port, '127.0.0.1'))
    await Promise.all(clients.map((client) => once(client, 'connect')))
    const drained = gateway.drain(20_000)
    const answers = clients.map(async (client) => {
      client.end(`GET ${USER} HTTP/1.1\r\nHost: a\r\n\r\n`).setEncoding('latin1')
      let raw = ''
      for await (const data of client) raw += data
      return raw.slice(0, 12)
    })
    expect(new Set(await Promise.all(answers))).toEqual(new Set(['HTTP/1.1 200']))
    await drained
  }))

test('a gateway whose event loop is never idle drains too, and takes no new connections then', () =>
  withGateway({ services }, async (gateway) => {
    let isBusy = true
    const work = () => {
      for (const until = performance.now() + 1; performance.now() < until; );
      if (isBusy) setImmediate(work)
    }
    work()
    try {
      await gateway.drain(20_000)
      await expect(fetch(gateway.url + USER)).rejects.toThrow()
    } finally {
      isBusy = false
    }
  }))

test('a draining gateway answers a request that arrived while it was busy', () =>
  withGateway({ services }, async (gateway) => {
    const client = net.connect(gateway.port, '127.0.0.1').setEncoding('latin1')
    await once(client, 'connect')
    await sleep(20)
    const drained = gateway.drain(20_000)
    await sleep(100)
    await new Promise((resolve) => setImmediate(resolve)) // timers run next
    client.write(`GET ${USER} HTTP/1.1\r\nHost: a\r\n\r\n`)
    for (const until = performance.now() + 1_200; performance.now() < until; );
    let raw = ''
    for await (const data of client) raw += data
    expect(raw).toMatch(/^HTTP\/1\.1 200 /)
    await drained
  }))

test('a draining gateway cuts off a client whose request has no answer in time', () => {
  const never = { GetAuthorizedUser: () => new Promise<object>(() => undefined) }
  return withGateway({ services: never }, async (gateway) => {
    const client = net.connect(gateway.port, '127.0.0.1')
    client.write(`GET ${USER} HTTP/1.1\r\nHost: a\r\n\r\n`)
    await vi.waitUntil(() => gateway.calls.length === 1)
    await Promise.all([once(client.resume(), 'close'), gateway.drain(100)])
  })
})

test('a draining gateway answers a request that does not arrive in time with 408', () =>
  withGateway({ limits: { headersTimeoutMs: 500, requestTimeoutMs: 1_500 } }, async (gateway) => {
    const form = 'POST /connect/sign-in HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nuser'
    const answer = sendRaw(gateway.port, form)
    await sleep(100)
    const drained = gateway.drain(30_000)
    expect(await rawFailure(await answer)).toEqual([408, 'InvalidArgument', 'invalid_argument'])
    await drained
  }))

test('a draining gateway does not wait for the end of a malformed request', async () => {
  let answer = (_: object) => {}
  const GetAuthorizedUser = () =>
    new Promise<object>((resolve) => {
      answer = resolve
    })
  await withGateway({ services: { GetAuthorizedUser } }, async (gateway) => {
    const client = net.connect(gateway.port, '127.0.0.1').setEncoding('latin1')
    client.write(`GET ${USER} HTTP/1.1\r\nHost: a\r\n\r\n`)
    client.write('POST /connect/sign-in HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n')
    await vi.waitUntil(() => gateway.calls.length === 1)
    await sleep(50)
    const startedAt = performance.now()
    const drained = gateway.drain(40_000)
    await sleep(100)
    answer({ openid: 'oid', nickname: '', avatar: '' })
    let raw = ''
    for await (const data of client) raw += data
    await drained
    expect(raw.match(/HTTP\/1\.1 \d+/g)).toEqual(['HTTP/1.1 200', 'HTTP/1.1 400'])
    expect(performance.now() - startedAt).toBeLessThan(25_000)
  })
})

test('a draining gateway answers all pipelined requests, in order', async () => {
  const slow = { GetAuthorizedUser: () => sleep(50, { openid: 'oid', nickname: '', avatar: '' }) }
  await withGateway({ services: slow }, async (gateway) => {
    const client = net.connect(gateway.port, '127.0.0.1')
    const chunks: Buffer[] = []
    client.on('data', (chunk: Buffer) => chunks.push(chunk))
    const get = (target: string) => `GET ${target} HTTP/1.1\r\nHost: a\r\n\r\n`
    client.write(get(USER) + get('/api/first') + get(USER) + get('/api/last'))
    await sleep(100) // the third is being answered, and the last waits for it
    await Promise.all([once(client, 'end'), gateway.drain(20_000)])
    const statuses = Buffer.concat(chunks)
      .toString()
      .match(/HTTP\/1\.1 \d+/g)
    expect(statuses?.map((line) => line.slice(-3))).toEqual(['200', '404', '200', '404'])
  })
})

test('a client may pipeline 64 requests; one that sends more before it has the answers is cut off', () =>
  withGateway({ services }, async (gateway) => {
    const get = `GET ${USER} HTTP/1.1\r\nHost: a\r\n`
    const statuses = (raw: string) => raw.match(/HTTP\/1\.1 \d{3}/g) ?? []
    const polite = `${`${get}\r\n`.repeat(63)}${get}Connection: close\r\n\r\n`
    expect(statuses(await sendRaw(gateway.port, polite))).toEqual(Array(64).fill('HTTP/1.1 200'))
    gateway.records.length = 0
    expect(await sendRaw(gateway.port, `${get}\r\n`.repeat(100_000))).toBe('')
    expect(gateway.records.length).toBeLessThan(65)
    expect((await fetch(gateway.url + USER)).status).toBe(200)
  }))

test.each([
  ['another request', 'GET /api/none HTTP/1.1\r\nHost: a\r\n\r\n', ['HTTP/1.1 404']],
  ['garbage', 'garbage\r\n\r\n', []],
])(
  'behind an answer that is not read nothing is served, and %s behind it costs no request its answer',
  async (_, last, answer) => {
    const long = { GetAuthorizedUser: () => ({ openid: 'oid', nickname: 'x'.repeat(100_000), avatar: '' }) }
    await withGateway({ services: long }, async (gateway) => {
      const accepted = once(gateway.server, 'connection')
      const client = net.connect({ port: gateway.port, host: '127.0.0.1', noDelay: true }).setEncoding('latin1').pause()
      const [socket] = (await accepted) as [net.Socket]
      const get = `GET ${USER} HTTP/1.1\r\nHost: a\r\n\r\n`
      let asked = 0
      while (socket.writableLength === 0) {
        client.write(get)
        asked += 1
        await vi.waitUntil(() => gateway.records.length === asked, { timeout: 20_000, interval: 1 })
      }
      for (let n = 0; n < 3; n++) {
        client.write(get)
        await sleep(20)
      }
      expect(gateway.records).toHaveLength(asked)
      client.end(last)
      let raw = ''
      for await (const data of client) raw += data
      const answers = raw.match(/HTTP\/1\.1 \d{3}/g)
      expect(answers?.slice(0, asked + 3)).toEqual(Array(asked + 3).fill('HTTP/1.1 200'))
      expect(answers?.slice(asked + 3)).toEqual(answer)
    })
  },
)

test('a draining gateway sends an answer to its end, however slowly it is read', async () => {
  const avatar = 'x'.repeat(24 * 1024 * 1024) // more than the kernel takes
  await withGateway(
    { services: { GetAuthorizedUser: () => ({ openid: 'oid', nickname: '', avatar }) } },
    async (gateway) => {
      const client = net.connect(gateway.port, '127.0.0.1').pause()
      client.write(`GET ${USER} HTTP/1.1\r\nHost: a\r\n\r\n`)
      while (gateway.records.length === 0) await sleep(10)
      const drained = gateway.drain(30_000)
      await sleep(1_500)
      let received = 0
      client.on('data', (chunk: Buffer) => {
        received += chunk.length
      })
      client.resume()
      await Promise.all([once(client, 'close'), drained])
      expect(received).toBeGreaterThan(avatar.length)
    },
  )
})

test('connections beyond the limit are closed without an answer', () =>
  withGateway({ limits: { maxConnections: 1 } }, async (gateway) => {
    const first = net.connect(gateway.port, '127.0.0.1')
    first.write(`GET ${USER} HTTP/1.1\r\nHost: a\r\n\r\n`)
    await once(first, 'data')
    expect(await sendRaw(gateway.port, `GET ${USER} HTTP/1.1\r\nHost: a\r\n\r\n`)).toBe('')
    first.destroy()
  }))

test('a gateway that has drained no longer shares its request counts', async () => {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] })
  onTestFinished(() => void vi.useRealTimers())
  const told: unknown[] = []
  const sharedLimits = {
    async countRequests(request: unknown) {
      told.push(request)
      return { $typeName: 'surveyauth.internal.v1.CountRequestsResponse' as const, totals: [] }
    },
  }
  await withGateway({ sharedLimits }, async ({ url, drain }) => {
    await (await fetch(`${url}/api/nowhere`)).text()
    vi.advanceTimersByTime(1_000)
    expect(told).toHaveLength(1)
    await (await fetch(`${url}/api/nowhere`)).text()
    await drain(1_000)
    vi.advanceTimersByTime(5_000)
    expect(told).toHaveLength(1)
  })
})

describe('an overloaded gateway', () => {
  test('begins one page in a turn of the event loop, so that an app is not behind a crowd of them', async () => {
    let turns = 0
    const turn = () => {
      turns += 1
      looking = setImmediate(turn)
    }
    let looking = setImmediate(turn)
    onTestFinished(() => clearImmediate(looking))
    const begunIn: number[] = []
    const session = () => {
      begunIn.push(turns)
      return { username: 'u', nickname: 'n' }
    }
    await withGateway({ services: { GetSession: session } }, async ({ port, server }) => {
      let accepted = 0
      server.on('connection', () => (accepted += 1))
      const sockets = Array.from({ length: 40 }, () => net.connect(port, '127.0.0.1').resume())
      await vi.waitUntil(() => accepted === sockets.length, 20_000)
      for (const socket of sockets)
        socket.write('GET /connect/apps HTTP/1.1\r\nHost: a\r\nCookie: sa_session=s\r\n\r\n')
      await vi.waitUntil(() => begunIn.length === sockets.length, 20_000)
      for (const socket of sockets) socket.destroy()
    })
    expect(new Set(begunIn).size).toBeGreaterThan(35)
  })

  test('does not count a form that is still being sent as in flight', () =>
    withGateway({ limits: { maxInFlight: 1 } }, async (gateway) => {
      const slow = net.connect(gateway.port, '127.0.0.1')
      slow.write('POST /connect/sign-in HTTP/1.1\r\nHost: a\r\nOrigin: http://127.0.0.1:8080\r\n')
      slow.write('Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 100\r\n\r\nusername=')
      await sleep(100)
      expect((await fetch(`${gateway.url}/connect/apps`, { redirect: 'manual' })).status).toBeLessThan(500)
      slow.destroy()
    }))

  const SURVEY = '/api/surveys/7?appid=app&access_token=tok'

  test('answers excess requests 503, and serves all again once it has room', async () => {
    const room = new EventEmitter()
    const held = once(room, 'made')
    const slow = {
      ...services,
      GetSurvey: async () => {
        await held
        throw refusal(ErrorReason.SURVEY_NOT_FOUND, Code.NotFound)
      },
    }
    await withGateway({ services: slow, limits: { maxInFlight: 3 } }, async (gateway) => {
      const waiting = Array.from({ length: 3 }, () => fetch(gateway.url + SURVEY))
      while (gateway.calls.length < 3) await sleep(5)
      for (let n = 0; n < 2; n++) {
        const refused = await fetch(gateway.url + USER)
        expect(refused.headers.get('retry-after')).toBe('1')
        expect(await failureOf(refused)).toEqual([503, 'RemoteServerError', 'remote_server_error'])
      }
      expect(
        (await fetch(`${gateway.url}/connect/apps`, { redirect: 'manual' })).status,
        'pages have room',
      ).toBeLessThan(500)
      room.emit('made')
      for (const answer of await Promise.all(waiting)) expect((await failureOf(answer))[2]).toBe('survey_not_found')
      expect((await fetch(gateway.url + USER)).status).toBe(200)
      expect(gateway.calls.filter(({ method }) => method === 'GetAuthorizedUser')).toHaveLength(1)
    })
  })
})
