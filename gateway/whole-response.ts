// node:http's response with a shorter way out for an answer that is there as a whole: one text, one write. The usual way
// looks at each header, writes twice and has the kernel asked for both together, a tenth of what an answer from memory costs.
import { type IncomingMessage, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'

interface Whole {
  readonly response: WholeResponse
  readonly socket: Socket
  readonly text: string
}

/** What waits until nothing more of this moment gets ready, and before anything else is read. */
const gathered: Whole[] = []
/** Whether one of this moment was sent. */
let isGathering = false

export class WholeResponse<Request extends IncomingMessage = IncomingMessage> extends ServerResponse<Request> {
  /** What ServerResponse knows its headers by; no documented member says that they were sent by others. */
  declare private _header: string
  declare private _headerSent: boolean

  /** Whether no answer must go before this one, it has a body, and its connection stays open. */
  get canBeWhole(): boolean {
    return this.shouldKeepAlive && this.socket?.writable === true && this.req.method !== 'HEAD'
  }

  /**
   * Sends status line, headers and body, each of their characters a byte. Only while `canBeWhole`; with a Content-Length,
   * and the connection headers of one that stays open.
   *
   * The first of a moment goes out at once, the others together when no more of them get ready. So a proxy or a load
   * generator on this machine is woken once for all of these, and not for each: that costs as much as a tenth of an answer.
   */
  endWhole(head: string, body: string): void {
    const { socket } = this
    if (!socket) throw new Error('another answer goes before this one')
    this._header = head
    this._headerSent = true
    this.finished = true
    const answer = { response: this, socket, text: head + body }
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
  socket.write(text, 'latin1')
  if (socket.writableLength === 0) response.emit('finish')
  else socket.write('', () => response.emit('finish')) // the kernel has not taken it all yet
}
