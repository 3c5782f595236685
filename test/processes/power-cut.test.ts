// The short version of `npm run test:power-cut`. Skipped where strace is not installed or may not trace.
import { execFile, spawnSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'

const SCRIPT = fileURLToPath(new URL('../long/power-cut.js', import.meta.url))
const canTrace = spawnSync('strace', ['-o', '/dev/null', 'true']).status === 0

test.skipIf(!canTrace)(
  'a power cut loses nothing acknowledged, nor after flushes that failed, and with synchronous=NORMAL alone it would',
  {
    timeout: 240_000,
  },
  async () => {
    const args = [SCRIPT, '--commits', '120', '--images', '3']
    const { stdout } = await promisify(execFile)(process.execPath, args).catch((error: { stdout: string }) => error)
    expect(stdout).toContain('as the product flushes: 120 commits, 360 images')
    expect(stdout).toMatch(/\nnothing acknowledged was lost\n$/)
  },
)
