// Calls to the token service by JSON over HTTP, as curl makes them: over a Unix socket, or over mTLS.
import { readFileSync } from 'node:fs'
import http from 'node:http'
import https from 'node:https'

/**
 * `url` is an address as RPC_LISTEN has them: unix:/path, https://host:port, for which `ca`, `cert` and `key` are PEM files, or
 * http://127.0.0.1:port.
 *
 * @param {import('./platform.js').RpcOptions} options
 * @returns a function that calls a method; its error has `reason`, and `restartUri` if there is one
 */
export function rpcClient({ url, ca, cert, key }) {
  const isSocket = url.startsWith('unix:')
  const base = isSocket ? 'http://localhost' : url
  const where = isSocket ? { socketPath: url.slice('unix:'.length) } : {}
  const isTls = url.startsWith('https:')
  const material = isTls ? { ca: readFileSync(ca), cert: readFileSync(cert), key: readFileSync(key) } : {}

  return async (method, message) => {
    const headers = { 'content-type': 'application/json', 'connect-timeout-ms': '4500' }
    const options = { method: 'POST', headers, timeout: 10_000, ...where, ...material }
    const { status, body } = await send(`${base}/surveyauth.v1.${method}`, options, JSON.stringify(message))
    const answer = JSON.parse(body)
    if (status === 200) return answer
    const { reason, metadata } = answer.details?.find(({ debug }) => debug?.reason)?.debug ?? {}
    throw Object.assign(new Error(answer.message), { reason: reason ?? answer.code, restartUri: metadata?.restart_uri })
  }
}

/** @returns {Promise<{ status: number, body: string }>} */
function send(url, options, message) {
  return new Promise((resolve, reject) => {
    const { request: open } = url.startsWith('https:') ? https : http
    const request = open(url, options, async (response) => {
      let body = ''
      for await (const chunk of response.setEncoding('utf8')) body += chunk
      resolve({ status: response.statusCode, body })
    })
    request.on('timeout', () => request.destroy(new Error('no answer in time'))).on('error', reject)
    request.end(message)
  })
}
