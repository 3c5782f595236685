import { expect, onTestFinished, test } from 'vitest'
import { untilToldToStop } from '../../bin/signals.js'
import { startProcess } from '../harness/process.js'

const SIGNALS = ['SIGTERM', 'SIGINT', 'SIGHUP'] as const

test.each([
  { what: 'had none', terminal: [false, false], isTold: false },
  { what: 'still has its own', terminal: [true, true], isTold: false },
  { what: 'has lost its own', terminal: [true, false], isTold: true },
])('SIGHUP, once or twice, stops only a process that has lost its terminal: one that $what', async (row) => {
  const [before, after] = row.terminal as [boolean, boolean]
  const others = SIGNALS.map((signal) => process.listeners(signal))
  onTestFinished(() => {
    for (const [at, signal] of SIGNALS.entries()) {
      for (const listener of process.listeners(signal))
        if (!others[at]?.includes(listener)) process.off(signal, listener)
    }
  })
  let hasTerminal = before
  const told = untilToldToStop(() => hasTerminal)
  hasTerminal = after
  process.emit('SIGHUP', 'SIGHUP')
  process.emit('SIGHUP', 'SIGHUP') // sent by the kernel and by the shell
  expect(await Promise.race([told, Promise.resolve().then(() => false)])).toBe(row.isTold && 'SIGHUP')
})

test('a terminal that is gone, so that nothing can be written on stderr, does not end a service', async () => {
  const gone = `process.on('SIGUSR2', () => process.stderr.emit('error', Object.assign(new Error(), { code: 'EIO' })))`
  const service = await startProcess({ NODE_OPTIONS: `--import=data:text/javascript,${encodeURIComponent(gone)}` })
  service.signal('SIGUSR2')
  await new Promise((resolve) => setTimeout(resolve, 200))
  expect((await fetch(`${service.url}/api/`)).status).toBe(404)
  expect(await service.stop()).toBe(0)
})
