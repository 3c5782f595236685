// The short version of `npm run test:crash`.
import { execFile } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'

const SCRIPT = fileURLToPath(new URL('../long/crash.js', import.meta.url))

test('killed under load again and again, it has lost nothing it acknowledged', { timeout: 240_000 }, async () => {
  const args = [SCRIPT, '--kills', '4', '--clients', '16']
  const { stdout } = await promisify(execFile)(process.execPath, args).catch((error: { stdout: string }) => error)
  expect(stdout).toContain('killed 4 times under 16 clients')
  expect(stdout).toMatch(/\nno violation\n$/)
})
