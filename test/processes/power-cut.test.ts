// The short version of `npm run test:power-cut`. Skipped where strace is not installed or may not trace.
import { execFile, spawnSync } from 'node:child_process'
import { readFileSync, realpathSync } from 'node:fs'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'
import { createProcess } from '../harness/process.js'
import { PROGRAM } from '../harness/spawn.js'

const SCRIPT = fileURLToPath(new URL('../long/power-cut.js', import.meta.url))
const canTrace = spawnSync('strace', ['-o', '/dev/null', 'true']).status === 0

test.skipIf(!canTrace)(
  'a power cut loses nothing acknowledged, even after failed flushes; with synchronous=NORMAL alone it would',
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

test.skipIf(!canTrace)('a backup is on the disk under its name before it is reported as done', async () => {
  const service = await createProcess()
  await service.json(['app', 'create', '--name', 'N', '--redirect-uri', 'https://app.example/callback'])
  const [file, trace] = [path.join(service.dataDir, 'backup.tar'), path.join(service.dataDir, 'trace')]
  const args = [
    '-f',
    '-y',
    '-e',
    'trace=link,linkat,fsync,write,writev',
    '-o',
    trace,
    process.execPath,
    PROGRAM,
    'backup',
    file,
  ]
  const env = { ...process.env, DATA_DIR: service.dataDir }
  expect(spawnSync('strace', args, { env }).status).toBe(0)
  const calls = readFileSync(trace, 'utf8').split('\n')
  const at = (pattern: RegExp) => calls.findIndex((call) => pattern.test(call))
  const steps = [
    at(/ fsync\(\d+<[^>]*\/backup\.tar>\) += 0/),
    at(/ link(at)?\(.*backup\.tar"/),
    at(new RegExp(` fsync\\(\\d+<${realpathSync(service.dataDir)}>\\) += 0`)),
    at(/ writev?\(1</),
  ]
  expect(steps).not.toContain(-1)
  expect(steps).toEqual([...steps].sort((one, other) => one - other))
})
