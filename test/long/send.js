import { request } from 'node:http'

const TIMEOUT_MS = 20_000

/** One request; rejects when there is no whole answer. `where`: host and port with an agent, or socketPath. */
export function sendTo(where, { target, method = 'GET', headers = {}, body }) {
  return new Promise((resolve, reject) => {
    const sent = request({ ...where, path: target, method, headers, timeout: TIMEOUT_MS }, (answer) => {
      const chunks = []
      answer.on('data', (chunk) => chunks.push(chunk))
      answer.on('error', reject)
      answer.on('end', () => {
        if (!answer.complete) return reject(new Error('cut off'))
        const text = Buffer.concat(chunks).toString('utf8')
        resolve({ status: answer.statusCode, headers: answer.headers, text })
      })
    })
    sent.on('timeout', () => sent.destroy(new Error(`no answer in ${TIMEOUT_MS} ms`)))
    sent.on('error', reject)
    sent.end(body)
  })
}

/** An operator's call by Connect, through the socket of a service. @throws Error when the answer is not 200 */
export async function callRpc(socketPath, method, message) {
  const headers = { 'content-type': 'application/json' }
  const outgoing = { target: `/surveyauth.v1.${method}`, method: 'POST', headers, body: JSON.stringify(message) }
  const { status, text } = await sendTo({ socketPath }, outgoing)
  if (status !== 200) throw new Error(`${method}: ${status} ${text}`)
  return JSON.parse(text)
}

export function sleep(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms))
}

export function say(line) {
  process.stdout.write(`${line}\n`)
}
