import { writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { connect } from 'node:net'
import { expect, onTestFinished, test } from 'vitest'
import { cannotListen, holdPort, letGo, serveOn } from '../../bin/compose/listen.js'
import { start } from '../../bin/compose/start.js'
import { readConfig } from '../../bin/config.js'
import { freePort } from '../harness/free-port.js'
import { temporaryDirectory } from '../store/temporary-directory.js'

/** A server's whole answer to a request sent at once. */
function ask(port: number): Promise<string> {
  return new Promise((resolve, reject) => {
    let said = ''
    const socket = connect(port, '127.0.0.1')
    socket.on('error', reject)
    socket.on('data', (chunk) => {
      said += chunk.toString('utf8')
    })
    socket.on('close', () => resolve(said))
    socket.write('GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n')
  })
}

test('a client that connects before the server is attached to the port is cut off, and those that come then are answered', async () => {
  const held = await holdPort('127.0.0.1', 0, 'PORT')
  expect(await ask(held.port).catch(() => '')).toBe('')
  const server = createServer((_request, response) => response.end('here I am'))
  onTestFinished(() => {
    server.close()
    server.closeAllConnections()
  })
  await serveOn(held, server)
  expect(await ask(held.port)).toContain('here I am')
})

test('a start that fails releases its ports', async () => {
  const DATA_DIR = temporaryDirectory()
  writeFileSync(`${DATA_DIR}/survey.db`, 'this is no database, and longer than the head of one would be'.repeat(10))
  const [PORT, ADMIN_PORT] = [await freePort(), await freePort()].map(String)
  const config = readConfig({ DATA_DIR, PORT, ADMIN_PORT, LOG_LEVEL: 'silent' })
  await expect(start('all', config)).rejects.toThrow('is damaged or not a database')
  for (const port of [PORT, ADMIN_PORT]) await letGo(await holdPort('127.0.0.1', Number(port), 'PORT'))
})

test.each([
  ['EADDRINUSE', 69, /^port 80 on a.example is in use$/],
  ['EACCES', 69, /^may not listen on port 80 of a.example$/],
  ['EADDRNOTAVAIL', 78, /^HOST must be an address of this machine, and a.example is none$/],
  ['ENOTFOUND', 78, /^HOST must be/],
  ['EAFNOSUPPORT', 78, /^HOST must be/],
  ['EINVAL', 78, /^HOST must be/],
  ['EMFILE', 69, /^cannot listen on port 80 of a.example \(EMFILE: it failed\)$/],
  ['EAI_AGAIN', 69, /^cannot listen on port 80 of a.example \(EAI_AGAIN: it failed\)$/],
])('a port that cannot be taken for %s ends the command with %i and one line', (code, exitCode, message) => {
  const error = Object.assign(new Error(`${code}: it failed`), { code })
  const told = cannotListen({ host: 'a.example', port: 80 }, 'PORT', error)
  expect(told).toMatchObject({ name: 'CommandError', exitCode, message: expect.stringMatching(message) })
})

test('a defect in listening stays one', () => {
  const error = Object.assign(new Error('a port is a number'), { code: 'ERR_SOCKET_BAD_PORT' })
  expect(cannotListen({ host: 'a.example', port: 80 }, 'PORT', error)).toBe(error)
})
