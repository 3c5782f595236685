// The short versions of `npm run test:crash`.
import { execFile } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'

const SCRIPT = fileURLToPath(new URL('../long/crash.js', import.meta.url))

/** The script's output, whether or not it found something. */
async function crash(...args: readonly string[]): Promise<string> {
  const run = promisify(execFile)(process.execPath, [SCRIPT, ...args, '--clients', '16'])
  const { stdout } = await run.catch((error: { stdout: string }) => error)
  return stdout
}

test('a service killed again and again under load loses nothing it acknowledged', { timeout: 240_000 }, async () => {
  const stdout = await crash('--database', 'sqlite', '--rounds', '4')
  expect(stdout).toContain('killed 4 times under 16 clients')
  expect(stdout).toMatch(/\nno violation\n$/)
})

test('a PostgreSQL that crashes under load is used again without a restart, and nothing acknowledged is lost', {
  timeout: 240_000,
}, async () => {
  const stdout = await crash('--database', 'postgres', '--rounds', '2')
  expect(stdout).toContain('stopped 2 times under 16 clients')
  expect(stdout).toContain('6 processes, 0 ended')
  expect(stdout).toMatch(/\nno violation\n$/)
})
