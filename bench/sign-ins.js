// A crowd at the sign-in form: all open the page at once, send the form in it, and come again when they are told to.
import { Agent, request } from 'node:http'
import { performance } from 'node:perf_hooks'

const PAGE = '/connect/apps'
const FORM = '/connect/sign-in'
const TIMEOUT_MS = 20_000

/**
 * @param {{ port: number, usernames: readonly string[], password: string, durationMs: number }} job
 * @returns how many were signed in within `durationMs`, and how often somebody was told to come again
 */
export async function signIns({ port, usernames, password, durationMs }) {
  const endsAt = performance.now() + durationMs
  const result = { signedIn: 0, refused: 0, failures: 0, examples: [] }
  const fail = (why) => {
    result.failures += 1
    if (result.examples.length < 3) result.examples.push(why)
  }
  await Promise.all(
    usernames.map(async (username) => {
      const agent = new Agent({ keepAlive: true, maxSockets: 1 })
      try {
        while (performance.now() < endsAt) {
          const answer = await signIn({ port, agent }, username, password)
          if (answer.status === 303) {
            result.signedIn += 1
            return
          }
          if (answer.status !== 429 && answer.status !== 503)
            return fail(`${answer.status} ${answer.text.slice(0, 300)}`)
          result.refused += 1
          const waitMs = Math.min(1_000 * Number(answer.headers['retry-after']), endsAt - performance.now())
          await new Promise((resolve) => setTimeout(resolve, waitMs))
        }
      } catch (error) {
        fail(error.stack)
      } finally {
        agent.destroy()
      }
    }),
  )
  return result
}

/** The answer to the form, or to the page if that was refused. */
async function signIn(where, username, password) {
  const page = await send({ ...where, path: PAGE })
  if (page.status !== 200) return page
  const hidden = [...page.text.matchAll(/<input type="hidden" name="([^"]+)" value="([^"]*)">/g)]
  const cookie = (page.headers['set-cookie'] ?? []).map((line) => line.split(';', 1)[0]).join('; ')
  const fields = { ...Object.fromEntries(hidden.map(([, name, value]) => [name, value])), username, password }
  const headers = {
    cookie,
    origin: `http://127.0.0.1:${where.port}`,
    'content-type': 'application/x-www-form-urlencoded',
  }
  return send({ ...where, path: FORM, method: 'POST', headers }, new URLSearchParams(fields).toString())
}

function send(options, body) {
  return new Promise((resolve, reject) => {
    const sent = request({ host: '127.0.0.1', timeout: TIMEOUT_MS, ...options }, (answer) => {
      const chunks = []
      answer.on('data', (chunk) => chunks.push(chunk))
      answer.on('error', reject)
      answer.on('end', () =>
        resolve({ status: answer.statusCode, headers: answer.headers, text: Buffer.concat(chunks).toString() }),
      )
    })
    sent.on('timeout', () => sent.destroy(new Error(`no answer to ${options.path} in ${TIMEOUT_MS} ms`)))
    sent.on('error', reject)
    sent.end(body)
  })
}
