// The short version of `npm run test:soak`.
import { execFile } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { expect, test, vi } from 'vitest'

const SCRIPT = fileURLToPath(new URL('../long/soak.js', import.meta.url))

vi.setConfig({ testTimeout: 120_000 })

/** The script's output, whatever its exit code. */
async function soak(...options: readonly string[]): Promise<string> {
  const args = [SCRIPT, '--minutes', '0.15', '--every', '1', ...options]
  const run = promisify(execFile)(process.execPath, args)
  const { stdout, stderr } = await run.catch((failed: { stdout: string; stderr: string }) => failed)
  expect(stderr).toBe('')
  return stdout
}

test.runIf(process.platform === 'linux')('three processes serve mixed and bad requests without a finding', async () => {
  const said = await soak('--allow', '500') // memory is still filling up
  expect(said).toMatch(/\n0 findings\n$/)
  for (const kind of ['exchange', 'refresh', 'user', 'surveys', 'revoke']) expect(said).toContain(`"${kind} OK":`)
})
