import { create } from '@bufbuild/protobuf'
import { timestampMs } from '@bufbuild/protobuf/wkt'
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import { limitsOf } from '../../bin/compose/gateway-part.js'
import { readConfig } from '../../bin/config.js'
import { RouteRates } from '../../gateway/rates/route-rates.js'
import { shareAll, startSharing } from '../../gateway/rates/sharing.js'
import { WindowCounter } from '../../gateway/rates/window-counter.js'
import { routes } from '../../gateway/routes.js'
import { canonicalAddress, networkOf } from '../../gateway/source.js'
import { CountRequestsRequestSchema, RequestCountSchema } from '../../gen/surveyauth/internal/v1/limit_service_pb.js'
import { createLimitHandlers } from '../../services/token/limit-service.js'
import { RequestCounts } from '../../services/token/store/sqlite/request-counts.js'
import { defaultLimits } from './start-gateway.js'

const MINUTE = { requests: 10, seconds: 60 }
const START = Date.UTC(2040, 0, 1)

function counterWith({ maxKeys = 100, isShared = false } = {}): WindowCounter {
  return new WindowCounter(MINUTE, maxKeys, isShared)
}

function takeMany(counter: WindowCounter, key: string, times: number, now = START): number {
  return Array.from({ length: times }, () => counter.take(key, now)).filter(Boolean).length
}

test('limits are as configured; pages allow an app as many requests as endpoints do, in their own window', () => {
  const settings = {
    RATE_API_PER_SOURCE: '11',
    RATE_API_PER_APP: '12',
    RATE_API_WINDOW_SECONDS: '13',
    RATE_PAGES_PER_SOURCE: '14',
    RATE_PAGES_WINDOW_SECONDS: '15',
    HTTP_HEADERS_TIMEOUT_SECONDS: '17',
    HTTP_REQUEST_TIMEOUT_SECONDS: '18',
    HTTP_KEEP_ALIVE_SECONDS: '19',
    HTTP_MAX_CONNECTIONS: '23',
    HTTP_MAX_IN_FLIGHT: '24',
  }
  expect(limitsOf(readConfig(settings))).toEqual({
    headersTimeoutMs: 17_000,
    requestTimeoutMs: 18_000,
    keepAliveTimeoutMs: 19_000,
    maxConnections: 23,
    maxInFlight: 24,
    rateLimit: true,
    rates: {
      api: { perSource: { requests: 11, seconds: 13 }, perApp: { requests: 12, seconds: 13 } },
      page: { perSource: { requests: 14, seconds: 15 }, perApp: { requests: 12, seconds: 15 } },
    },
  })
})

describe('a window', () => {
  test('admits as many requests as the rate says, and tells how many are left and when it ends', () => {
    const counter = counterWith()
    expect(takeMany(counter, 'a', 4, START + 15_000)).toBe(4)
    expect(counter.allowance('a', START + 15_000)).toEqual({ limit: 10, remaining: 6, resetSeconds: 45 })
    expect(takeMany(counter, 'a', 99, START + 59_999)).toBe(6)
    expect(counter.allowance('a', START + 59_999)).toEqual({ limit: 10, remaining: 0, resetSeconds: 1 })
    expect(takeMany(counter, 'a', 99, START + 60_000)).toBe(10)
    expect(counter.allowance('a', START + 60_001).resetSeconds, 'who waits so long does not come too early').toBe(60)
    expect(counter.allowance('a', START + 100_500).resetSeconds).toBe(20)
  })

  test('starts over when the clock is set back', () => {
    const counter = counterWith()
    takeMany(counter, 'a', 10)
    expect(counter.has('a', START)).toBe(false)
    expect(counter.has('a', START - 3_600_000)).toBe(true)
  })

  test('holds a bounded number of keys: beyond it all are forgotten and nobody is locked out', () => {
    const counter = counterWith({ maxKeys: 3 })
    for (const key of ['a', 'b', 'c', 'd']) takeMany(counter, key, 10)
    expect(['a', 'b', 'c', 'd'].map((key) => counter.has(key, START))).toEqual([true, true, true, false])
  })

  test('has no more counts to share after a flood of a million keys than it may hold', () => {
    const counter = counterWith({ maxKeys: 10_000, isShared: true })
    for (let n = 0; n < 1_000_000; n += 1) counter.take(`192.0.2.1-${n}`, START)
    expect(counter.takeUnreported(2_000_000).length).toBeLessThanOrEqual(10_000)
  })
})

test.each([
  ['192.0.2.1', '192.0.2.1'],
  ['::1', '0:0:0:0::/64'],
  ['2001:db8::', '2001:db8:0:0::/64'],
  ['2001:db8::1:2', '2001:db8:0:0::/64'],
  ['2001::a:b:c:d:e', '2001:0:0:a::/64'],
  ['2001:db8:1:2:3:4:5:6', '2001:db8:1:2::/64'],
])('%s is counted as %s', (address, network) => {
  expect(networkOf(address)).toBe(network)
})

test.each([
  ['2001:DB8:0::01', '2001:db8::1'],
  ['::FFFF:192.0.2.1', '192.0.2.1'],
  ['FE80::1%eth0', 'fe80::1%eth0'],
  ['192.0.2', undefined],
])('%s as an address is %s', (text, address) => {
  expect(canonicalAddress(text)).toBe(address)
})

describe('the routes', () => {
  const oneOfEach = ['api', 'page'].flatMap((kind) => routes.find((route) => route.kind === kind) ?? [])

  function ratesWith({ isShared = false, ...limits }: Partial<typeof defaultLimits> & { isShared?: boolean } = {}) {
    const rates = {
      api: { perSource: { ...MINUTE, requests: 1 }, perApp: { ...MINUTE, requests: 2 } },
      page: { perSource: { ...MINUTE, requests: 3 }, perApp: { ...MINUTE, requests: 4 } },
    }
    return new RouteRates({ ...defaultLimits, rates, rateLimit: true, ...limits }, isShared)
  }

  /** How many of ten are admitted. */
  function admitted(request: () => void): number {
    const outcomes = Array.from({ length: 10 }, () => {
      try {
        request()
        return true
      } catch {
        return false
      }
    })
    return outcomes.filter(Boolean).length
  }

  test('for programs and those for people have separate rates, per source and per app', () => {
    const rates = ratesWith()
    const bySource = oneOfEach.map(({ kind }) => admitted(() => rates.admitSource('192.0.2.1', kind, START)))
    const byApp = oneOfEach.map((route) =>
      admitted(() => {
        rates.admitApp('a', route, START)
        rates.countApp('a', route, START)
      }),
    )
    expect({ bySource, byApp }).toEqual({ bySource: [1, 3], byApp: [2, 4] })
  })

  test.each([
    { who: 'a gateway among others owes them', isShared: true },
    { who: 'a gateway that is alone owes nobody', isShared: false },
  ])('$who what each of its rates has counted', ({ isShared }) => {
    const rates = ratesWith({ isShared })
    for (const route of oneOfEach) {
      rates.admitSource(route.kind === 'api' ? '192.0.2.3' : '192.0.2.4', route.kind, START)
      rates.countApp('a', route, START)
    }
    const owed = [...rates.counters].map(([name, counter]) => [name, counter.takeUnreported(9).map(({ key }) => key)])
    const all = {
      'api source': ['192.0.2.3'],
      'page source': ['192.0.2.4'],
      'api app': ['access_token a'],
      'page app': ['landing a'],
    }
    const none = { 'api source': [], 'page source': [], 'api app': [], 'page app': [] }
    expect(Object.fromEntries(owed)).toEqual(isShared ? all : none)
  })
})

describe('gateways that share', () => {
  test('report a limited number of counts at a time, and the rest next', () => {
    const counter = counterWith({ isShared: true })
    for (const key of ['a', 'b', 'c']) counter.take(key, START)
    const keys = () => counter.takeUnreported(2).map(({ key }) => key)
    expect([keys(), keys(), keys()]).toEqual([['a', 'b'], ['c'], []])
  })

  test('report again the counts that could not be reported, unless their window has ended', () => {
    const counter = counterWith({ isShared: true })
    counter.take('a', START)
    const taken = counter.takeUnreported(2)
    counter.giveBack(taken)
    expect(counter.takeUnreported(2)).toEqual(taken)
    counter.take('b', START + 60_000)
    counter.giveBack(taken)
    expect(counter.takeUnreported(2).map(({ key }) => key)).toEqual(['b'])
  })

  /** TokenService as the gateways see it. */
  function tokenService(isDown: () => boolean = () => false) {
    const counts = new RequestCounts()
    return {
      async countRequests(request: { counts?: { key?: string; windowEndTime?: unknown; requests?: number }[] }) {
        if (isDown()) throw new Error('unavailable')
        const asked = request.counts ?? []
        expect(new Set(asked.map(({ key }) => key)).size).toBe(asked.length)
        const totals = asked.map(({ key = '', windowEndTime, requests = 0 }) =>
          counts.add({ key, windowEndMs: timestampMs(windowEndTime as Parameters<typeof timestampMs>[0]), requests }),
        )
        return { $typeName: 'surveyauth.internal.v1.CountRequestsResponse' as const, totals }
      },
    }
  }

  test('together admit what a single one would, apart from requests admitted between two reports', async () => {
    const service = tokenService()
    const [left, right] = [counterWith({ isShared: true }), counterWith({ isShared: true })]
    const share = async () => {
      for (const counter of [left, right, left]) await shareAll(new Map([['api source', counter]]), service)
    }
    expect(takeMany(left, 'a', 4) + takeMany(right, 'a', 3)).toBe(7)
    await share()
    expect(takeMany(left, 'a', 2)).toBe(2)
    await share()
    // The right one learnt the total when it last counted; it learns the rest when it counts again.
    expect([left, right].map((counter) => counter.allowance('a', START).remaining)).toEqual([1, 3])
    expect(takeMany(right, 'a', 1)).toBe(1)
    await share()
    expect(right.has('a', START)).toBe(false)
    expect(takeMany(right, 'a', 1)).toBe(0)
    expect(takeMany(left, 'a', 1)).toBe(1)
    await share()
    expect(left.has('a', START)).toBe(false)
  })

  test('are refused when they report a key twice', async () => {
    const { countRequests } = createLimitHandlers({ countRequests: async () => [] })
    const counts = ['a', 'b', 'a'].map((key) => create(RequestCountSchema, { key, requests: 1 }))
    const request = create(CountRequestsRequestSchema, { counts })
    await expect(countRequests(request, {} as never)).rejects.toThrow('counts must have each key once')
  })

  test('limit by their own counts while the token service is unavailable, and report those later', async () => {
    let isDown = true
    const service = tokenService(() => isDown)
    const [left, right] = [counterWith({ isShared: true }), counterWith({ isShared: true })]
    expect(takeMany(left, 'a', 6)).toBe(6)
    await shareAll(new Map([['api source', left]]), service)
    expect(takeMany(left, 'a', 99)).toBe(4)
    isDown = false
    await shareAll(new Map([['api source', left]]), service)
    takeMany(right, 'a', 1)
    await shareAll(new Map([['api source', right]]), service)
    expect(right.has('a', START)).toBe(false)
    expect(right.allowance('a', START).remaining, 'never below none').toBe(0)
  })

  test('report many clients in calls small enough for the service, each client once', async () => {
    const sizes: number[] = []
    const service = tokenService()
    const measured = {
      countRequests(request: Parameters<typeof service.countRequests>[0]) {
        sizes.push(JSON.stringify(request.counts?.map(({ key }) => key)).length)
        return service.countRequests(request)
      },
    }
    const [left, right] = [
      counterWith({ isShared: true, maxKeys: 10_000 }),
      counterWith({ isShared: true, maxKeys: 10_000 }),
    ]
    const keys = Array.from({ length: 4_000 }, (_, index) => `2001:db8:${index.toString(16)}:ffff::/64`)
    for (const key of keys) takeMany(left, key, 2)
    await shareAll(new Map([['api source', left]]), measured)
    expect(Math.max(...sizes)).toBeLessThan(16_384)
    expect(sizes).toHaveLength(4_000 / 200)
    expect(left.takeUnreported(10_000)).toEqual([])
    for (const key of keys) takeMany(right, key, 1)
    await shareAll(new Map([['api source', right]]), measured)
    expect(new Set(keys.map((key) => right.allowance(key, START).remaining))).toEqual(new Set([7]))
  })

  test('lose no request that is counted while a report is in flight', async () => {
    const service = tokenService()
    const [left, right] = [counterWith({ isShared: true }), counterWith({ isShared: true })]
    takeMany(left, 'a', 2)
    const sharing = shareAll(new Map([['api source', left]]), service)
    takeMany(left, 'a', 3)
    await sharing
    await shareAll(new Map([['api source', left]]), service)
    takeMany(right, 'a', 1)
    await shareAll(new Map([['api source', right]]), service)
    expect(right.allowance('a', START).remaining).toBe(4)
  })

  test('add what others admitted to what they count while a report is in flight', async () => {
    const service = tokenService()
    const [left, right] = [counterWith({ isShared: true }), counterWith({ isShared: true })]
    takeMany(right, 'a', 2)
    await shareAll(new Map([['api source', right]]), service)
    takeMany(left, 'a', 2)
    const sharing = shareAll(new Map([['api source', left]]), service)
    takeMany(left, 'a', 3)
    await sharing
    expect(left.allowance('a', START).remaining).toBe(3)
  })

  test('admit no more when the token service has forgotten what they reported', async () => {
    let service = tokenService()
    const counter = counterWith({ isShared: true })
    takeMany(counter, 'a', 6)
    await shareAll(new Map([['api source', counter]]), service)
    service = tokenService()
    takeMany(counter, 'a', 1)
    await shareAll(new Map([['api source', counter]]), service)
    expect(counter.allowance('a', START).remaining).toBe(3)
  })

  test('report new counts every second, one round at a time, until they stop', async () => {
    vi.useFakeTimers()
    onTestFinished(() => void vi.useRealTimers())
    const told: number[] = []
    let answer = () => {}
    const countRequests = (request: { counts?: { requests?: number }[] }) => {
      told.push(request.counts?.[0]?.requests ?? 0)
      return new Promise<never>((_resolve, reject) => {
        answer = () => reject(new Error('unavailable'))
      })
    }
    const counter = counterWith({ isShared: true })
    const stop = startSharing(new Map([['api source', counter]]), { countRequests })
    for (const expected of [[1], [1, 3], [1, 3, 5]]) {
      takeMany(counter, 'a', 1)
      await vi.advanceTimersByTimeAsync(1_000)
      expect(told).toEqual(expected)
      takeMany(counter, 'a', 1)
      await vi.advanceTimersByTimeAsync(5_000)
      expect(told).toEqual(expected)
      answer()
    }
    stop()
    await vi.advanceTimersByTimeAsync(5_000)
    expect(told).toHaveLength(3)
  })
})
