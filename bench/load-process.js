// The load generator as a process of its own: one job a message.
import { closedLoop, openLoop } from './load.js'

process.on('disconnect', () => process.exit())
process.on('message', async ({ loop, job }) => {
  try {
    process.send({ result: await (loop === 'open' ? openLoop(job) : closedLoop(job)) })
  } catch (error) {
    process.send({ error: error.stack })
  }
})
process.send({ ready: true })
