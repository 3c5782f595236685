import { Socket } from 'node:net'

/**
 * A socket that sends together what is written in one go, such as BEGIN and the statement after it: each piece that is sent
 * wakes the server, which on a busy machine costs more than the statement. No effect under TLS, which does not write through
 * the socket it is given.
 */
export function createGatheringSocket(): Socket {
  const socket = new Socket()
  let isGathering = false
  socket.once('connect', () => {
    const { write } = socket
    // Not in a subclass: connecting restores the socket's own write.
    socket.write = (...piece: unknown[]) => {
      if (!isGathering) {
        isGathering = true
        socket.cork()
        process.nextTick(() => {
          isGathering = false
          socket.uncork()
        })
      }
      return write.apply(socket, piece as Parameters<Socket['write']>)
    }
  })
  return socket
}
