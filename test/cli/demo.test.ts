// The demo: one command, and everything it prints works.
import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { expect, onTestFinished, test } from 'vitest'

const PROGRAM = fileURLToPath(new URL('../../bin/survey-auth.js', import.meta.url))
const START_TIMEOUT_MS = 30_000
const run = promisify(execFile)

interface Demo {
  readonly guide: string
  /** Ends it as Ctrl-C does; its exit code. */
  stop(): Promise<number | null>
  kill(): Promise<number | null>
}

function temporaryFolder(): string {
  const folder = mkdtempSync(path.join(tmpdir(), 'survey-auth-demo-'))
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
  return folder
}

function spawnDemo(dataDir: string, env: Readonly<Record<string, string>> = {}): ChildProcess {
  const { PATH = '', HOME = '' } = process.env
  const child = spawn(process.execPath, [PROGRAM, 'demo'], { env: { PATH, HOME, DATA_DIR: dataDir, ...env } })
  onTestFinished(() => void child.kill('SIGKILL'))
  return child
}

async function startDemo(dataDir: string): Promise<Demo> {
  const child = spawnDemo(dataDir)
  let output = ''
  const guide = await new Promise<string>((resolve, reject) => {
    const collect = (chunk: Buffer) => {
      output += chunk.toString('utf8')
      if (output.includes('Ctrl-C ends the demo')) resolve(output)
    }
    child.stdout?.on('data', collect)
    child.stderr?.on('data', collect)
    child.on('close', (code) => reject(new Error(`the demo ended with ${code}: ${output}`)))
    setTimeout(() => reject(new Error(`the demo did not start: ${output}`)), START_TIMEOUT_MS).unref()
  })
  const end = (signal: NodeJS.Signals) =>
    new Promise<number | null>((resolve) => {
      child.once('close', resolve)
      child.kill(signal)
    })
  return { guide, stop: () => end('SIGINT'), kill: () => end('SIGKILL') }
}

/** Runs every printed curl line in a shell, in order; what each answered. */
async function paste(guide: string): Promise<{ code: string; data: Record<string, unknown> }[]> {
  const answers = []
  for (const line of guide.match(/^curl .*$/gm) ?? []) {
    const { stdout } = await run('sh', ['-c', line])
    answers.push(JSON.parse(stdout))
  }
  return answers
}

const everyEndpoint = [
  { code: 'OK', data: { expires_in: 259_200 } },
  { code: 'OK', data: { expires_in: 259_200 } },
  { code: 'OK', data: { nickname: expect.any(String) } },
  { code: 'OK', data: { total: expect.any(Number), list: expect.any(Array) } },
  { code: 'OK', data: { id: expect.any(Number), pages: expect.any(Array) } },
]

test('every printed command works as printed, and Ctrl-C ends it with 0', { timeout: 60_000 }, async () => {
  const demo = await startDemo(temporaryFolder())
  expect(await paste(demo.guide)).toMatchObject(everyEndpoint)
  const [page] = demo.guide.match(/^http:\S+\/connect\/oauth2\/authorize\S+$/m) ?? []
  expect((await fetch(page ?? '')).status).toBe(200)
  expect(await demo.stop()).toBe(0)
})

test('it starts again after a crash, and a second one runs beside the first', { timeout: 90_000 }, async () => {
  const dataDir = temporaryFolder()
  await (await startDemo(dataDir)).kill()
  const first = await startDemo(dataDir)
  const second = await startDemo(dataDir)
  expect(await paste(second.guide)).toMatchObject(everyEndpoint)
  expect(await paste(first.guide)).toMatchObject(everyEndpoint)
  expect(await Promise.all([first.stop(), second.stop()])).toEqual([0, 0])
})

test.each([
  ['NODE_ENV', 'production'],
  ['HOST', '0.0.0.0'],
])('it refuses to run with %s=%s', async (variable, value) => {
  const child = spawnDemo(temporaryFolder(), { [variable]: value })
  expect(await new Promise((resolve) => child.on('close', resolve))).toBe(78)
})
