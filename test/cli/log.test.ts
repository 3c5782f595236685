import { execFileSync, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { PassThrough } from 'node:stream'
import { fileURLToPath } from 'node:url'
import { Code } from '@connectrpc/connect'
import { expect, onTestFinished, test, vi } from 'vitest'
import { createObservers } from '../../bin/compose/observers.js'
import { lineAMinute } from '../../bin/telemetry/line-a-minute.js'
import { createLog } from '../../bin/telemetry/log.js'
import { StoreUnavailable } from '../../services/storage/store-unavailable.js'
import { freezeTime } from '../harness/freeze-time.js'
import { BUILD } from '../harness/spawn.js'

const LOG = new URL('../../dist/bin/telemetry/log.js', import.meta.url).href

/** A log in memory, and the objects it has written, one a line. */
function inMemory(logLevel: 'info' | 'error' = 'info') {
  const stream = new PassThrough({ encoding: 'utf8' })
  const log = createLog({ logLevel, logFormat: 'json' }, stream)
  const lines = () =>
    String(stream.read() ?? '')
      .split('\n')
      .filter(Boolean)
  return { log, text: () => lines().join('\n'), written: () => lines().map((line) => JSON.parse(line)) }
}

test.each(['json', 'pretty'] as const)(
  'a line for a terminal (%s) holds nothing that could change what it shows',
  (logFormat) => {
    const stream = Object.assign(new PassThrough({ encoding: 'utf8' }), { isTTY: true })
    createLog({ logLevel: 'info', logFormat }, stream).failure(
      'failed',
      new Error('a \u001b[2J\u0085\u202e\u2028 b\nc'),
    )
    const told = String(stream.read())
    expect(told).toContain('failed')
    expect(told.replaceAll('\n', '').replace(/\u001b\[\d+m/g, '')).not.toMatch(/[\p{Cc}\p{Cf}\u2028\u2029]/u)
  },
)

test('credentials that an error quotes are masked, in its message and its stack', () => {
  const { log, text } = inMemory()
  const kinds = ['sac', 'sat', 'sart', 'sas', 'sase']
  const quoted = kinds.map((kind) => `${kind}_${'x'.repeat(49)}`)
  log.failure('failed', new Error(`what is ${quoted.join(', or ')}?`), 'of the request')
  const told = text()
  expect(told).not.toContain('xxx')
  expect(told.split(`what is ${kinds.map((kind) => `${kind}_***`).join(', or ')}?`)).toHaveLength(3)
  expect(told).toContain('"request_id":"of the request"')
})

test('a janitor does not log that a database is unavailable; it logs any other failure', () => {
  const { log, text } = inMemory()
  const { onError } = createObservers(log).janitor('token')
  onError(new StoreUnavailable(new Error('connection refused')))
  expect(text()).toBe('')
  onError(new TypeError('of nobody knows what'))
  expect(text()).toContain('of nobody knows what')
})

test('of a thrown value that is not an Error nothing is logged but its type', () => {
  const { log, text } = inMemory()
  log.failure('failed', 'canary')
  expect(text()).not.toContain('canary')
})

test('requests answered 5xx are errors; unavailable and timed-out calls are warnings, other calls are for debugging', () => {
  const request = { route: 'user', method: 'GET', outcome: 'ok', durationMs: 1, requestId: 'r' }
  const call = { rpc: 'a/B', method: 'B', caller: 'gateway', requestId: 'r', reason: undefined, durationMs: 1 } as const
  const { log, written } = inMemory()
  for (const status of [200, 404, 499, 500, 503]) log.request({ ...request, status })
  expect(written().map(({ level }) => level)).toEqual([30, 30, 30, 50, 50])
  for (const code of [undefined, Code.NotFound, Code.Unavailable, Code.DeadlineExceeded]) log.call({ ...call, code })
  expect(written().map(({ level, code }) => [level, code])).toEqual([
    [40, 'unavailable'],
    [40, 'deadline_exceeded'],
  ])
})

test('lines below LOG_LEVEL are not written', () => {
  const { log, written } = inMemory('error')
  for (const status of [200, 500]) {
    log.request({ route: 'user', method: 'GET', status, outcome: 'ok', durationMs: 1, requestId: 'r' })
  }
  log.warning('soon')
  log.failure('failed', new Error('why'))
  expect(written().map(({ status, msg }) => [status, msg])).toEqual([
    [500, 'request'],
    [undefined, 'failed'],
  ])
})

test('recurring warnings have one line a minute for each kind, which says how often it occurred', () => {
  freezeTime()
  const { log, written } = inMemory()
  const tell = lineAMinute(log)
  for (const waitMs of [0, 59_999, 1, 0]) {
    vi.advanceTimersByTime(waitMs)
    tell('one', `one after ${waitMs} ms`)
  }
  tell('other', 'the other')
  expect(written().map(({ level, msg }) => [level, msg])).toEqual([
    [40, 'one after 0 ms (1 since the last line on this)'],
    [40, 'one after 1 ms (2 since the last line on this)'],
    [40, 'the other (1 since the last line on this)'],
  ])
})

test('each line has its time', () => {
  vi.useFakeTimers({ toFake: ['Date'] })
  onTestFinished(() => void vi.useRealTimers())
  const { log, written } = inMemory()
  for (const time of ['2026-11-24T10:00:00.000Z', '2026-11-24T10:00:00.001Z']) {
    vi.setSystemTime(time)
    log.request({ route: 'user', method: 'GET', status: 200, outcome: 'ok', durationMs: 1, requestId: 'r' })
    log.note('a note')
    expect(written()).toMatchObject([
      { time, msg: 'request' },
      { time, msg: 'a note' },
    ])
  }
})

test('a buffered line is written without waiting until the buffer is full', async () => {
  execFileSync(process.execPath, [BUILD], { stdio: 'inherit' })
  const script = `
    const { createLog } = await import('${LOG}')
    const log = createLog({ logLevel: 'info', logFormat: 'json' }, process.stderr)
    log.request({ route: 'user', method: 'GET', status: 200, outcome: 'ok', durationMs: 1, requestId: 'r' })
    setTimeout(() => undefined, 60_000)
  `
  const child = spawn(process.execPath, ['--input-type=module', '--eval', script])
  onTestFinished(() => void child.kill('SIGKILL'))
  const [told] = await once(child.stderr, 'data')
  expect(JSON.parse(told)).toMatchObject({ route: 'user', msg: 'request' })
}, 30_000)

test('a line larger than a single write arrives whole and in its place', () => {
  execFileSync(process.execPath, [BUILD], { stdio: 'inherit' })
  const script = `
    const { createLog } = await import('${LOG}')
    const log = createLog({ logLevel: 'info', logFormat: 'json' }, process.stderr)
    const request = { route: 'user', method: 'GET', status: 200, outcome: 'ok', durationMs: 1, requestId: 'r' }
    for (let sent = 0; sent < 300; sent += 1) log.request({ ...request, appid: 'é'.repeat(100) + sent })
    log.failure('large', new Error('é'.repeat(100_000)))
    log.request({ ...request, appid: 'last' })
    await log.end(performance.now() + 10_000)
  `
  const { stderr } = spawnSync(process.execPath, ['--input-type=module', '--eval', script], {
    cwd: fileURLToPath(new URL('../..', import.meta.url)),
    encoding: 'utf8',
  })
  const lines = stderr.trimEnd().split('\n')
  const told = lines.map((line) => JSON.parse(line)).map(({ appid, error }) => appid ?? error.message)
  const requests = Array.from({ length: 300 }, (_, sent) => 'é'.repeat(100) + sent)
  expect(told).toEqual([...requests, 'é'.repeat(100_000), 'last'])
})

test('lines that nobody reads are kept up to a bound, and the log says how much was lost', async () => {
  execFileSync(process.execPath, [BUILD], { stdio: 'inherit' })
  const script = `
    const { createLog } = await import('${LOG}')
    const log = createLog({ logLevel: 'info', logFormat: 'json' }, process.stderr)
    const request = { route: 'user', method: 'GET', status: 200, outcome: 'ok', durationMs: 1, requestId: 'r' }
    for (let sent = 0; sent < 40_000; sent += 1) log.request({ ...request, appid: 'x'.repeat(1_000) })
    process.stdout.write('written')
    process.stdin.once('data', () => log.note('all was told'))
  `
  const child = spawn(process.execPath, ['--input-type=module', '--eval', script], {
    cwd: fileURLToPath(new URL('../..', import.meta.url)),
  })
  onTestFinished(() => void child.kill('SIGKILL'))
  await once(child.stdout, 'data')
  let [read, last] = [0, '']
  for await (const chunk of child.stderr) {
    read += chunk.length
    last = (last + chunk).slice(-500)
    if (last.includes('were lost')) child.stdin.write('go on')
    if (last.includes('all was told')) break
  }
  expect(last).toMatch(/"msg":"2\d{7} bytes of the log were lost: stderr was not read, or could not be written"/)
  expect(last.match(/were lost/g), 'told once').toHaveLength(1)
  expect(read).toBeGreaterThan(15 * 1024 * 1024)
}, 30_000)

test.each([['json'], ['pretty']])(
  'a full disk does not end or stop a process that logs to it as %s; its lines follow when there is room',
  (format) => {
    execFileSync(process.execPath, [BUILD], { stdio: 'inherit' })
    const script = (isFullAtTheEnd: boolean) => `
    import fs from 'node:fs'
    let isFull = true
    const full = Object.assign(new Error('ENOSPC: no space left on device, write'), { code: 'ENOSPC' })
    const { write, writeSync } = fs
    fs.write = (...all) => (isFull ? setImmediate(all.at(-1), full) : write(...all))
    fs.writeSync = (...all) => {
      if (isFull) throw full
      return writeSync(...all)
    }
    const { createLog } = await import('${LOG}')
    const { setTimeout: sleep } = await import('node:timers/promises')
    const log = createLog({ logLevel: 'info', logFormat: '${format}' }, process.stderr)
    for (const text of ['first', 'second']) {
      log.note(text)
      await sleep(200)
    }
    isFull = ${isFullAtTheEnd}
    log.note('third')
    await sleep(200)
    log.request({ route: 'user', method: 'GET', status: 200, outcome: 'ok', durationMs: 1, requestId: 'r' })
    process.exit(3)
  `
    const run = (isFullAtTheEnd: boolean) => {
      const { status, stderr } = spawnSync(
        process.execPath,
        ['--input-type=module', '--eval', script(isFullAtTheEnd)],
        {
          cwd: fileURLToPath(new URL('../..', import.meta.url)),
          encoding: 'utf8',
          timeout: 10_000,
        },
      )
      const lines = stderr.split('\n').filter(Boolean)
      return { status, told: lines.flatMap((line) => /first|second|third|user/.exec(line) ?? []) }
    }
    expect(run(false)).toEqual({ status: 3, told: ['first', 'second', 'third', 'user'] })
    expect(run(true)).toEqual({ status: 3, told: [] })
  },
  30_000,
)
