// Real processes and ports for them, for tests that start and end processes themselves.
import { type ChildProcess, spawn } from 'node:child_process'
import { fileURLToPath } from 'node:url'

export const PROGRAM = fileURLToPath(new URL('../../bin/survey-auth.js', import.meta.url))
export const BUILD = fileURLToPath(new URL('../../bin/build-if-needed.js', import.meta.url))

/** `survey-auth serve MODE ARGS`. `listening` fulfils when it says so, and rejects when it ends before. */
export function spawnServe(
  mode: string,
  env: Record<string, string>,
  ...args: readonly string[]
): { readonly child: ChildProcess; readonly listening: Promise<void> } {
  const child = spawn(process.execPath, [PROGRAM, 'serve', mode, ...args], { env, stdio: ['ignore', 'ignore', 'pipe'] })
  const listening = new Promise<void>((resolve, reject) => {
    let said = ''
    child.stderr.on('data', (chunk: Buffer) => {
      said += chunk.toString('utf8')
      if (said.includes('listening on')) resolve()
    })
    child.once('exit', (code) => reject(new Error(`serve ${mode} ended with ${code}: ${said}`)))
  })
  return { child, listening }
}
