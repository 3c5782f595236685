import { Code, ConnectError } from '@connectrpc/connect'
import { expect, onTestFinished, test, vi } from 'vitest'
import { report } from '../../bin/exit.js'

test('a service that does not have the call is answered with what names the services', () => {
  const written: string[] = []
  const stderr = vi.spyOn(process.stderr, 'write').mockImplementation((text) => written.push(String(text)) > 0)
  onTestFinished(() => stderr.mockRestore())
  const exitCode = report(new ConnectError('ExportSurveys is not served here', Code.Unimplemented))
  expect(written.join('')).toMatch(/is not served here\n.*SURVEY_SERVICE_URL/)
  expect(exitCode).toBe(1)
})
