import type { IncomingMessage } from 'node:http'
import { invalidArgument, type Problem } from './errors.js'
import { MAX_FORM_BYTES } from './limits.js'
import { type Params, parseQuery } from './query.js'

/** How much of a refused body is still read, so that its sender gets to see the answer. */
const DRAIN_BYTES = 1024 * 1024

/** How long to wait for the end of a body that is too large, in ms: an answer before that may be lost with the connection. */
const LARGE_MS = 1_000

const FORM_TYPE = 'application/x-www-form-urlencoded'

/** The parameters of a form. @throws Problem when too large, of another type, or malformed. */
export async function readForm(request: IncomingMessage): Promise<Params> {
  const body = await readBody(request)
  const [type = ''] = (request.headers['content-type'] ?? '').split(';', 1)
  if (type.trim().toLowerCase() !== FORM_TYPE || request.headers['content-encoding'] !== undefined) {
    throw invalidArgument(`the body must be ${FORM_TYPE}`, { httpStatus: 415 })
  }
  return parseQuery(body.toString('latin1')) // parseQuery refuses every byte that is not ASCII
}

/** Whether the client announces a body larger than that. */
export function announcesMore(request: IncomingMessage, maxBytes = MAX_FORM_BYTES): boolean {
  return Number(request.headers['content-length']) > maxBytes
}

/** The whole body, whether its length was announced or not. @throws Problem when it is larger than a form may be. */
export function readBody(request: IncomingMessage): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = []
    let size = 0
    let patience: NodeJS.Timeout | undefined
    const refuse = () => reject(tooLarge())
    const refuseSoon = () => {
      patience ??= setTimeout(refuse, LARGE_MS)
    }
    if (announcesMore(request)) {
      if (announcesMore(request, DRAIN_BYTES) || request.headers.expect !== undefined) return refuse()
      refuseSoon()
    }
    request.on('data', (chunk: Buffer) => {
      size += chunk.length
      if (size <= MAX_FORM_BYTES) {
        chunks.push(chunk)
        return
      }
      chunks.length = 0
      if (size > DRAIN_BYTES) refuse()
      else refuseSoon()
    })
    request.on('end', () => {
      clearTimeout(patience)
      if (size > MAX_FORM_BYTES) refuse()
      else resolve(Buffer.concat(chunks))
    })
    request.on('close', () => {
      clearTimeout(patience)
      reject(invalidArgument('the request ended early', { httpStatus: 400 }))
    })
  })
}

function tooLarge(): Problem {
  return invalidArgument(`the body is larger than ${MAX_FORM_BYTES} bytes`, { httpStatus: 413 })
}
