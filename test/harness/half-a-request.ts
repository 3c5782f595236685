import { connect } from 'node:net'
import { onTestFinished } from 'vitest'

/** A sign-in form whose last bytes are held back, so that the server must wait for the request. */
export async function halfARequest(url: string): Promise<{ finish(): void; answer: Promise<string> }> {
  const { hostname, port } = new URL(url)
  const socket = connect(Number(port), hostname)
  onTestFinished(() => void socket.destroy())
  const answer = new Promise<string>((resolve) => {
    let text = ''
    socket.on('data', (chunk) => {
      text += chunk.toString('latin1')
    })
    socket.on('error', () => undefined) // it is cut off, and `close` follows
    socket.on('close', () => resolve(text))
  })
  socket.write('POST /connect/sign-in HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n')
  socket.write('Content-Type: application/x-www-form-urlencoded\r\n\r\na=')
  await new Promise((resolve) => setTimeout(resolve, 100))
  return { finish: () => void socket.write('b'), answer }
}
