// The short version of `npm run test:churn`.
import { execFile } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'

const SCRIPT = fileURLToPath(new URL('../long/churn.js', import.meta.url))

test('the file stops growing when as many grants end as begin, and no live grant is touched', {
  timeout: 120_000,
}, async () => {
  const args = [SCRIPT, '--refreshes', '30000', '--at-once', '8']
  const { stdout } = await promisify(execFile)(process.execPath, args).catch((error: { stdout: string }) => error)
  expect(stdout).toMatch(/30000 refreshes in 52 days/)
  expect(stdout).toMatch(/\nthe file stays as it is, \d+ s\n$/)
})
