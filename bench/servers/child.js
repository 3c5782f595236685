// What every server started here tells its parent: where it listens, what it seeded, how long its event loop was delayed.
import { monitorEventLoopDelay } from 'node:perf_hooks'

/** Between two looks at the event loop, here and in prom-client; what is measured contains it. */
export const RESOLUTION_MS = 10

/**
 * @param {Record<string, (count: number) => unknown>} seeds by name
 * @param {object} about sent along with the port
 */
export function serveParent(server, seeds = {}, about = {}) {
  const delay = monitorEventLoopDelay({ resolution: RESOLUTION_MS })
  delay.enable()
  process.on('disconnect', () => process.exit())
  process.on('message', async ({ seed, count }) => {
    try {
      if (seed === undefined) {
        process.send({ delayMs: delay.percentile(99) / 1e6 })
        delay.reset()
      } else process.send({ seeded: await seeds[seed](count) })
    } catch (error) {
      process.send({ error: error.stack })
    }
  })
  server.listen(0, '127.0.0.1', () => process.send({ port: server.address().port, ...about }))
}
