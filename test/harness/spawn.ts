// Real processes and ports for them, for tests that start and end processes themselves.
import { type ChildProcess, spawn } from 'node:child_process'
import { fileURLToPath } from 'node:url'

export const PROGRAM = fileURLToPath(new URL('../../bin/survey-auth.js', import.meta.url))
export const BUILD = fileURLToPath(new URL('../../bin/build-if-needed.js', import.meta.url))

/** Starts `survey-auth serve MODE ARGS`; `listening` is the promise of untilListening. */
export function spawnServe(
  mode: string,
  env: Record<string, string>,
  ...args: readonly string[]
): { readonly child: ChildProcess; readonly listening: Promise<void> } {
  const child = spawn(process.execPath, [PROGRAM, 'serve', mode, ...args], { env, stdio: ['ignore', 'ignore', 'pipe'] })
  return { child, listening: untilListening(child) }
}

/** Fulfils when a server says on stderr that it listens; rejects if it ends first. */
export function untilListening(server: ChildProcess): Promise<void> {
  return new Promise((resolve, reject) => {
    let said = ''
    server.stderr?.on('data', (chunk: Buffer) => {
      said += chunk.toString('utf8')
      if (said.includes('listening on')) resolve()
    })
    server.once('exit', (code) => reject(new Error(`${server.spawnargs.join(' ')} ended with ${code}: ${said}`)))
  })
}
