// Two gateways in front of one token service together admit as much as one would.
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { Writable } from 'node:stream'
import { expect, onTestFinished, test } from 'vitest'
import type { Mode } from '../../bin/compose/addresses.js'
import { start } from '../../bin/compose/start.js'
import { readConfig } from '../../bin/config.js'

const RATE = 20

test('requests admitted by one gateway count at the other within seconds', async () => {
  const dataDir = mkdtempSync(path.join(tmpdir(), 'survey-auth-rates-'))
  onTestFinished(() => rmSync(dataDir, { recursive: true, force: true }))
  const env = { DATA_DIR: dataDir, PORT: '0', ADMIN_PORT: '0', RATE_API_PER_SOURCE: String(RATE) }
  const config = readConfig({ ...env, RATE_API_WINDOW_SECONDS: '3600' })
  const logStream = new Writable({ write: (_chunk, _encoding, done) => done() })
  async function run(mode: Mode): Promise<string> {
    const running = await start(mode, config, { logStream })
    onTestFinished(() => running.close())
    return running.url
  }
  await run('token')
  const [left, right] = [await run('gateway'), await run('gateway')]
  const ask = async (url: string) => (await fetch(`${url}/api/oauth2/user`)).status

  for (let n = 0; n < RATE; n += 1) expect(await ask(left)).toBe(400)
  expect(await ask(left)).toBe(429)
  let admitted = 0
  while ((await ask(right)) !== 429) {
    admitted += 1
    expect(admitted).toBeLessThan(RATE) // alone it would admit as many as that
    await new Promise((resolve) => setTimeout(resolve, 500))
  }
  expect(admitted).toBeGreaterThan(0) // a request never waits for the other gateway
})
