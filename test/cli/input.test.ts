import { Readable } from 'node:stream'
import { expect, onTestFinished, test, vi } from 'vitest'
import { readPassword } from '../../bin/commands/input.js'

test('a password from a file or a pipe is taken without a word', async () => {
  const written: string[] = []
  vi.spyOn(process.stderr, 'write').mockImplementation((text) => written.push(String(text)) > 0)
  vi.spyOn(process, 'stdin', 'get').mockReturnValue(
    Readable.from([Buffer.from('correct horse\n')]) as typeof process.stdin,
  )
  onTestFinished(() => void vi.restoreAllMocks())
  expect(await readPassword()).toBe('correct horse')
  expect(written).toEqual([])
})
