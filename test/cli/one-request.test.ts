// A command's calls to the services share one request id, whether it opens the databases itself or calls a server.
import { expect, onTestFinished, test, vi } from 'vitest'
import { asOperator } from '../../bin/compose/operator.js'
import { createProcess } from '../harness/process.js'
import { temporaryDirectory } from '../store/temporary-directory.js'

/** Request ids in the audit trail of a command that creates two users. */
async function requestIdsOf(dataDir: string): Promise<readonly string[]> {
  vi.stubEnv('DATA_DIR', dataDir)
  vi.stubEnv('LOG_LEVEL', 'silent')
  vi.spyOn(process.stderr, 'write').mockReturnValue(true)
  onTestFinished(() => {
    vi.unstubAllEnvs()
    vi.restoreAllMocks()
  })
  return asOperator(
    async ({ admin }) => {
      for (const username of ['ada', 'ben']) await admin.createUser({ username, password: 'correct horse' })
      const { events } = await admin.listAuditEvents({ pageSize: 10 })
      return events.map(({ requestId }) => requestId)
    },
    { creates: true },
  )
}

function expectOne(requestIds: readonly string[]): void {
  expect(requestIds).toHaveLength(2)
  expect(requestIds[0]).toMatch(/^[0-9a-f-]{36}$/)
  expect(requestIds[1]).toBe(requestIds[0])
}

test('the calls of a command with databases of its own share one request id', async () => {
  expectOne(await requestIdsOf(temporaryDirectory()))
})

test('the calls of a command to a server share one request id', async () => {
  const service = await createProcess()
  await service.start()
  expectOne(await requestIdsOf(service.dataDir))
})
