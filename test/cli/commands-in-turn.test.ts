// The process in which the other tests of this folder run their commands.
import { expect, test } from 'vitest'
import { createProcess } from '../harness/process.js'

test('what a command logs is written once, and nothing of it among what the next ones write', async () => {
  const service = await createProcess()
  await service.json(['user', 'create', '--username', 'ann', '--password-stdin'], { input: 'correct horse\n' })
  const list = ['user', 'list']
  const logging = await service.run(list, { env: { LOG_LEVEL: 'debug' } })
  expect(logging.stderr.trimEnd().split('\n')).toEqual([expect.stringContaining('ListUsers')])
  const end = performance.now() + 300 // three times as long as a line may wait for others
  while (performance.now() < end) expect(await service.run(list)).toEqual({ ...logging, stderr: '' })
})
