// The requests of a crowd, to several gateways in turn, and what became of them.
import { Agent } from 'node:http'
import { sendTo, sleep } from './send.js'

/** How long the load runs before and after what it is watched for. */
const LOAD_MS = 300

/** Whether a failed request may have changed something: such a one is not sent again when a service is killed. */
export function mayChange({ what }) {
  return /^POST|^GET \/api\/oauth2\/(?:access|refresh)_token/.test(what)
}

export class Clients {
  count = 0
  pauseMs
  #seen = []
  #agent = new Agent({ keepAlive: true })
  #gateways

  /** `gateways()`: addresses of those to ask now; `pauseMs`: before each request. */
  constructor(gateways, pauseMs) {
    this.#gateways = gateways
    this.pauseMs = pauseMs
  }

  send = async (outgoing) => {
    await sleep(this.pauseMs)
    const gateways = this.#gateways()
    const startMs = performance.now()
    const what = `${outgoing.method ?? 'GET'} ${outgoing.target.split('?')[0]}`
    const see = (status) => this.#seen.push({ what, status, startMs, answeredMs: performance.now() })
    try {
      if (gateways.length === 0) throw new Error('no gateway is ready')
      const { hostname: host, port } = new URL(gateways[this.count++ % gateways.length])
      const answer = await sendTo({ agent: this.#agent, host, port }, outgoing)
      see(answer.status)
      return answer
    } catch (error) {
      see(error.code ?? error.message)
      throw error
    }
  }

  /** What clients see from shortly before `work` until shortly after: how many were answered, the failed ones, the longest time. */
  async during(work) {
    await sleep(LOAD_MS)
    this.#seen = []
    await work()
    await sleep(LOAD_MS)
    const seen = this.#seen
    return {
      answered: seen.length,
      failed: seen.filter(({ status }) => !(status < 500)),
      longestMs: Math.max(...seen.map(({ startMs, answeredMs }) => answeredMs - startMs)),
    }
  }
}
