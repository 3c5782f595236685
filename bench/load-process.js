// The load generator as a process of its own: one job per message.
import { closedLoop, openLoop, overload } from './load.js'
import { signIns } from './sign-ins.js'

const loops = { closed: closedLoop, open: openLoop, overload, 'sign-ins': signIns }

process.on('disconnect', () => process.exit())
process.on('message', async ({ loop, job }) => {
  try {
    process.send({ result: await loops[loop](job) })
  } catch (error) {
    process.send({ error: error.stack })
  }
})
process.send({ ready: true })
