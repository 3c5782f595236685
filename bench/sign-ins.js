// A crowd at the sign-in form: all open the page at once, submit its form, and retry when told to.
import { Agent } from 'node:http'
import { performance } from 'node:perf_hooks'
import { formTo, signsIn } from '../test/long/person.js'
import { sendTo, sleep } from '../test/long/send.js'

const HOST = '127.0.0.1'
const PAGE = '/connect/apps'
const FORM = '/connect/sign-in'

/**
 * @param {{ port: number, usernames: readonly string[], password: string, durationMs: number }} job
 * @returns how many were signed in within `durationMs`, and how often somebody was told to retry
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
          const answer = await signIn({ host: HOST, port, agent }, username, password)
          if (answer.status === 303 && signsIn(answer)) {
            result.signedIn += 1
            return
          }
          if (answer.status !== 429 && answer.status !== 503)
            return fail(`${answer.status} ${answer.text.slice(0, 300)}`)
          result.refused += 1
          const waitMs = Math.min(1_000 * Number(answer.headers['retry-after']), endsAt - performance.now())
          await sleep(waitMs)
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
  const page = await sendTo(where, { target: PAGE })
  if (page.status !== 200) return page
  const form = formTo(page.text, FORM)
  const headers = {
    cookie: (page.headers['set-cookie'] ?? []).map((line) => line.split(';', 1)[0]).join('; '),
    origin: `http://${where.host}:${where.port}`,
    'content-type': 'application/x-www-form-urlencoded',
  }
  const body = new URLSearchParams({ ...form.fields, username, password }).toString()
  return sendTo(where, { target: form.action, method: 'POST', headers, body })
}
