// node:http's response with a shorter path for an answer that is ready as a whole: one text, one write. The usual path
// looks at each header and makes two writes, joined into one system call: a tenth of the cost of an answer from memory.
import { type IncomingMessage, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import type { Pieces } from './http.js'

interface Whole {
  readonly response: WholeResponse
  readonly socket: Socket
  readonly text: string | Pieces
}

/** Answers held until no more of this tick become ready; they are sent before anything else is read. */
const gathered: Whole[] = []
/** Whether the first answer of this tick has been sent. */
let isGathering = false

export class WholeResponse<Request extends IncomingMessage = IncomingMessage> extends ServerResponse<Request> {
  /** How ServerResponse knows its headers; no documented member can tell it that they were sent another way. */
  declare private _header: string
  declare private _headerSent: boolean

  /** Whether no answer must go before this one, this one has a body, and the connection stays open. */
  get canBeWhole(): boolean {
    return this.shouldKeepAlive && this.socket?.writable === true && this.req.method !== 'HEAD'
  }

  /**
   * Sends status line, headers and body, each character one byte. Only while `canBeWhole`; `head` must hold a Content-Length
   * and the headers of a connection that stays open.
   *
   * The first answer of a tick goes out at once, the others together when no more become ready. A proxy or load generator on
   * this machine is then woken once for all of these, not for each: a wake-up costs as much as a tenth of an answer.
   */
  endWhole(head: string, body: string | Pieces): void {
    const { socket } = this
    if (!socket) throw new Error('another answer goes before this one')
    this._header = head
    this._headerSent = true
    this.finished = true
    const answer = { response: this, socket, text: typeof body === 'string' ? head + body : [head, ...body] }
    if (isGathering) {
      gathered.push(answer)
      return
    }
    isGathering = true
    process.nextTick(sendGathered)
    send(answer)
  }
}

function sendGathered(): void {
  isGathering = false
  for (const answer of gathered.splice(0)) send(answer)
}

function send({ response, socket, text }: Whole): void {
  if (typeof text === 'string') socket.write(text, 'latin1')
  else {
    socket.cork() // one system call
    for (const piece of text) socket.write(piece, 'latin1')
    socket.uncork()
  }
  if (socket.writableLength === 0) response.emit('finish')
  else socket.write('', (error) => !error && response.emit('finish')) // the kernel has not taken it all yet
}
