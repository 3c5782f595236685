import { Readable } from 'node:stream'
import { expect, onTestFinished, test, vi } from 'vitest'
import { readPassword } from '../../bin/commands/input.js'

test.each([
  { from: 'a terminal', isTTY: true, told: ['type the password, which this terminal shows, then Enter and Ctrl-D\n'] },
  { from: 'a file', isTTY: undefined, told: [] },
])('a password from $from: a person is told that it is waited for', async ({ isTTY, told }) => {
  const written: string[] = []
  vi.spyOn(process.stderr, 'write').mockImplementation((text) => written.push(String(text)) > 0)
  vi.spyOn(process, 'stdin', 'get').mockReturnValue(
    Object.assign(Readable.from([Buffer.from('correct horse\n')]), { isTTY }) as typeof process.stdin,
  )
  onTestFinished(() => void vi.restoreAllMocks())
  expect(await readPassword()).toBe('correct horse')
  expect(written).toEqual(told)
})
