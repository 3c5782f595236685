// The short version of `npm run test:replace`.
import { execFile } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'

const SCRIPT = fileURLToPath(new URL('../long/replace.js', import.meta.url))

test('of two token and two survey services each is killed, stopped and drained, and nothing fails but what was in flight at one that was killed', {
  timeout: 480_000,
}, async () => {
  const run = promisify(execFile)(process.execPath, [SCRIPT, '--rounds', '1', '--clients', '4', '--pause', '20'])
  const { stdout } = await run.catch((error: { stdout: string }) => error)
  expect(stdout).toMatch(/\n\d{3,} requests, 0 failed besides those in flight, 0 violations\n$/)
})
