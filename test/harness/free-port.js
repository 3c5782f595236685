import { createServer } from 'node:net'

// Below the ephemeral ports (Linux from 32768 on, others from 49152): a port that is free now still is when the program
// meant for it has started, seconds later on a busy machine. From 11000 on browsers block none.
const FIRST = 11_000
const COUNT = 21_000

/** A port of 127.0.0.1 nobody listens on now. */
export async function freePort() {
  while (true) {
    const port = FIRST + Math.floor(Math.random() * COUNT)
    if (await isFree(port)) return port
  }
}

function isFree(port) {
  return new Promise((resolve) => {
    const server = createServer()
    server.once('error', () => resolve(false))
    server.listen(port, '127.0.0.1', () => server.close(() => resolve(true)))
  })
}
