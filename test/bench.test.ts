// The benchmark's arithmetic, its seed data and its load generator, on which every figure depends, and its command line.
import { spawnSync } from 'node:child_process'
import { createServer, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { fileURLToPath } from 'node:url'
import { afterEach, describe, expect, test } from 'vitest'
import { Answers, closedLoop, INCOMPLETE, openLoop } from '../bench/load.js'
import { SERVER_FLAGS } from '../bench/processes.js'
import {
  dueAtMs,
  dueBy,
  median,
  middleHalf,
  pairedDifferences,
  pairedRatios,
  percentile,
  summary,
} from '../bench/stats.js'
import { createProcess } from './harness/process.js'

const ROOT = fileURLToPath(new URL('..', import.meta.url))
const BENCH = fileURLToPath(new URL('../bench/run.js', import.meta.url))
const MARKER = '{"code":"OK"'
const GOOD = '{"code":"OK","error":{"type":""},"data":{},"request_id":"x"}'
const REQUEST = 'GET / HTTP/1.1\r\nHost: x\r\n\r\n'

const servers: Server[] = []
afterEach(() => {
  for (const server of servers.splice(0)) {
    server.close()
    server.closeAllConnections()
  }
})

test('servers are started with the options with which the command starts Node', () => {
  expect(SERVER_FLAGS).toEqual(expect.arrayContaining(['--v8-pool-size=1', '--no-memory-reducer']))
})

/** Port of a server that answers as given; `path` is the request's. */
function serve(answer: (response: ServerResponse, path: string) => void): Promise<number> {
  const server = createServer((request, response) => answer(response, request.url ?? ''))
  servers.push(server)
  return new Promise((resolve) => {
    server.listen(0, '127.0.0.1', () => resolve((server.address() as AddressInfo).port))
  })
}

function send(response: ServerResponse, body: string, status = 200): void {
  response.writeHead(status, { 'content-length': Buffer.byteLength(body) }).end(body)
}

describe('arithmetic', () => {
  const thousand = Array.from({ length: 1000 }, (_, index) => index + 1)

  test.each([
    [0, 1],
    [0.5, 500],
    [0.99, 990],
    [0.999, 999],
    [1, 1000],
  ])('the percentile %d of 1 to 1000 is %d', (share, value) => {
    expect(percentile(thousand, share)).toBe(value)
  })

  test('a summary takes latencies in any order, or none', () => {
    expect(summary([...thousand].reverse())).toEqual({ count: 1000, p50: 500, p99: 990, p999: 999, max: 1000 })
    expect(summary([]).p99).toBeNaN()
  })

  test('a median is the middle, or the mean of the middle two', () => {
    expect([median([9, 1, 5]), median([1, 9, 5, 3]), median([7])]).toEqual([5, 4, 7])
  })

  test('ratios and differences are taken per round, so that a round that is bad for both sides does not count', () => {
    expect(pairedRatios([50, 5, 52, 7], [100, 10, 100])).toEqual([0.5, 0.5, 0.52])
    expect(pairedDifferences([3, 40, 5], [2, 38, 4, 9])).toEqual([1, 2, 1])
  })

  test('the middle half leaves out a quarter at each end', () => {
    expect(middleHalf([8, 1, 7, 2, 6, 3, 5, 4])).toEqual([3, 6])
    expect(middleHalf([7, 1, 6, 2, 5, 3, 4])).toEqual([2, 6])
    expect(middleHalf([3])).toEqual([3, 3])
    expect(middleHalf([])).toEqual([Number.NaN, Number.NaN])
  })

  test('what is unknown in one round leaves the others as they are', () => {
    expect(median([170, Number.NaN, 163, 165, 161])).toBe(164)
    expect(median([Number.NaN])).toBeNaN()
    expect(middleHalf([170, Number.NaN, 163, 165, 161])).toEqual([163, 165])
  })

  test('an open loop sends at its rate: request 0 at once, request n after n / rate', () => {
    expect([dueAtMs(0, 200), dueAtMs(1, 200), dueAtMs(200, 200)]).toEqual([0, 5, 1000])
    expect([dueBy(-1, 200), dueBy(0, 200), dueBy(4.9, 200), dueBy(5, 200), dueBy(1000, 200)]).toEqual([0, 1, 1, 2, 201])
  })
})

describe('answers', () => {
  const head = (length: number, status = '200 OK') => `HTTP/1.1 ${status}\r\nContent-Length: ${length}\r\n\r\n`

  test('a whole answer with the marker is good', () => {
    const answers = new Answers(MARKER)
    expect(answers.judge(head(GOOD.length) + GOOD)).toBeUndefined()
    expect(answers.judge(head(GOOD.length) + GOOD)).toBeUndefined()
  })

  test('an answer that has only arrived in part is waited for', () => {
    const answers = new Answers(MARKER)
    const whole = head(GOOD.length) + GOOD
    for (let length = 0; length < whole.length; length++) expect(answers.judge(whole.slice(0, length))).toBe(INCOMPLETE)
  })

  test.each([
    ['another status', head(GOOD.length, '429 Too Many Requests') + GOOD],
    ['a failure in the envelope', `${head(20)}{"code":"NotFound"} `],
    ['bytes after its end', `${head(GOOD.length) + GOOD}x`],
    ['no length', 'HTTP/1.1 200 OK\r\n\r\n'],
    ['its marker in the head only', `HTTP/1.1 200 OK\r\nx: ${MARKER}\r\nContent-Length: 2\r\n\r\n{}`],
  ])('an answer with %s is bad', (_what, text) => {
    expect(new Answers(MARKER).judge(text)).toEqual(expect.any(String))
  })
})

describe('closed loop', () => {
  test('counts no more good answers than the server has sent', async () => {
    let seen = 0
    const port = await serve((response) => {
      seen++
      send(response, GOOD)
    })
    const result = await closedLoop({ port, requests: [REQUEST], marker: MARKER, connections: 4, durationMs: 200 })
    expect(result.failures).toBe(0)
    expect(result.latency.count).toBeGreaterThan(0)
    expect(result.latency.count).toBeLessThanOrEqual(seen)
    expect(result.rate).toBeCloseTo(result.latency.count / result.seconds)
  })

  test('an answer with the wrong envelope is a failure, with its text', async () => {
    const port = await serve((response) => send(response, '{"code":"PermissionDenied"}'))
    const result = await closedLoop({ port, requests: [REQUEST], marker: MARKER, connections: 2, durationMs: 200 })
    expect(result.failures).toBeGreaterThan(0)
    expect(result.examples[0]?.why).toContain('PermissionDenied')
  })

  test('one wrong answer among good ones is a failure', async () => {
    let seen = 0
    const port = await serve((response) => send(response, GOOD, ++seen === 3 ? 503 : 200))
    const result = await closedLoop({ port, requests: [REQUEST], marker: MARKER, connections: 2, durationMs: 500 })
    expect(result.failures).toBe(1)
  })

  test('a lost connection is a failure', async () => {
    const port = await serve((response) => response.destroy())
    const result = await closedLoop({ port, requests: [REQUEST], marker: MARKER, connections: 2, durationMs: 200 })
    expect(result.failures).toBeGreaterThan(0)
  })

  test('a request that may be sent only once is sent once, and the run ends with the last one', async () => {
    const seen: string[] = []
    const port = await serve((response, path) => {
      seen.push(path)
      send(response, GOOD)
    })
    const requests = Array.from({ length: 40 }, (_, index) => `GET /${index} HTTP/1.1\r\nHost: x\r\n\r\n`)
    const job = { port, requests, once: true, marker: MARKER, connections: 3, durationMs: 20_000 }
    const result = await closedLoop(job)
    expect(result.failures).toBe(0)
    expect(seen.length).toBe(40)
    expect(new Set(seen).size).toBe(40)
  })

  test('a request without an answer is a failure, although others are answered', { timeout: 20_000 }, async () => {
    let seen = 0
    const port = await serve((response) => {
      if (++seen > 2) send(response, GOOD)
    })
    const result = await closedLoop({ port, requests: [REQUEST], marker: MARKER, connections: 4, durationMs: 200 })
    expect(result.failures).toBe(2)
    expect(result.examples).toEqual([{ why: 'no answer in time', times: 2 }])
    expect(result.latency.count).toBeGreaterThan(0)
  })
})

describe('open loop', () => {
  test('sends as many requests as its rate asks for', async () => {
    let seen = 0
    const port = await serve((response) => {
      seen++
      send(response, GOOD)
    })
    const job = { port, requests: [REQUEST], marker: MARKER, connections: 8, rate: 200, warmupMs: 100, durationMs: 400 }
    const result = await openLoop(job)
    expect(result.failures).toBe(0)
    expect(seen).toBe(100)
    expect(result.latency.count).toBe(80)
  })

  test('a stall counts for every request that was due during it', async () => {
    const stallMs = 300
    let seen = 0
    const port = await serve((response) => {
      if (++seen === 1) setTimeout(() => send(response, GOOD), stallMs)
      else send(response, GOOD)
    })
    const job = { port, requests: [REQUEST], marker: MARKER, connections: 1, rate: 100, durationMs: 400 }
    const result = await openLoop(job)
    expect(result.failures).toBe(0)
    expect(result.latency.max).toBeGreaterThanOrEqual(stallMs - 20)
    expect(result.latency.p50).toBeGreaterThan(50) // the fifteen due in the first half of the stall waited 150 ms and more
  })

  test('a request without an answer is a failure, and those that wait behind it count', {
    timeout: 20_000,
  }, async () => {
    const port = await serve(() => undefined)
    const job = { port, requests: [REQUEST], marker: MARKER, connections: 4, rate: 100, durationMs: 400 }
    const result = await openLoop(job)
    expect(result.failures).toBe(4)
    expect(result.latency.count).toBe(36)
    expect(result.latency.max).toBeGreaterThan(5_000)
    expect(result.backlog).toBe(36)
  })

  test('a server that is too slow has a backlog when the last request is due', async () => {
    const port = await serve((response) => setTimeout(() => send(response, GOOD), 10))
    const job = { port, requests: [REQUEST], marker: MARKER, connections: 1, rate: 400, durationMs: 250 }
    const result = await openLoop(job)
    expect(result.failures).toBe(0)
    expect(result.latency.count).toBe(100)
    expect(result.backlog).toBeGreaterThan(50) // at most one in 10 ms was answered
  })

  test('a wrong answer is a failure', async () => {
    const port = await serve((response) => send(response, '{}'))
    const job = { port, requests: [REQUEST], marker: MARKER, connections: 2, rate: 50, durationMs: 100 }
    expect((await openLoop(job)).failures).toBe(5)
  })
})

describe('command line', () => {
  test.each([
    ['a baseline without its folder', ['--only', 'all-in-one,baseline'], 'belong together'],
    ['a folder of a baseline that is not measured', ['--baseline', '.', '--only', 'all-in-one'], 'belong together'],
    ['an unknown contestant', ['--only', 'toString'], 'there is no toString'],
    ['a file in a folder that does not exist', ['--out', 'no/such/folder/x.json'], 'there is no folder'],
  ])('%s is refused before anything runs', (_what, args, why) => {
    const { status, stderr } = spawnSync(process.execPath, [BENCH, ...args], { encoding: 'utf8' })
    expect(stderr).toContain(why)
    expect(status).toBe(2)
  })
})

test('a run decides nothing when nobody knows how much it was disturbed', async () => {
  const { figuresOf } = await import('../bench/figures.js' as string)
  const cell = { line: 'user', name: 'ceiling', rates: [1], cpuMicros: [[1]], p50: [1], p99: [1], open: [] }
  const isDisturbed = (waited: number) => figuresOf({ cells: [{ ...cell, waited: [waited] }], memory: {} }).isDisturbed
  expect([isDisturbed(0.04), isDisturbed(0.06), isDisturbed(Number.NaN)]).toEqual([false, true, true])
})

test('a service is filled as the benchmark needs it, and issues its codes', { timeout: 120_000 }, async () => {
  const service = await createProcess()
  const { seedSurveyAuth } = await import('../bench/seed.js' as string)
  const amounts = { users: 203, grants: 1_000, owners: 2, surveysPerOwner: 3 }
  const seeded = await seedSurveyAuth(ROOT, service.dataDir, amounts)
  expect([...seeded.surveys.values()].flat()).toHaveLength(6)
  const { appid, secret, readGrants, refreshGrants, sessions, newcomers } = seeded
  expect([readGrants, refreshGrants, sessions, newcomers].map(({ length }) => length)).toEqual([1_000, 1_000, 100, 3])

  await service.start()
  const { codeIssuer } = await import('../bench/codes.js' as string)
  const codes = await codeIssuer({ dataDir: service.dataDir, mode: 'all' }, seeded)
  const issued = await codes.issue(5)
  codes.close()
  const exchanges = issued.map(async (code: string) => {
    const query = new URLSearchParams({ appid, secret, code, grant_type: 'authorization_code' })
    return (await fetch(`${service.url}/api/oauth2/access_token?${query}`)).status
  })
  expect(await Promise.all(exchanges)).toEqual([200, 200, 200, 200, 200])
})
