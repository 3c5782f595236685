import { Code, ConnectError } from '@connectrpc/connect'
import { expect, onTestFinished, test, vi } from 'vitest'
import { report } from '../../bin/exit.js'
import { StoreUnavailable } from '../../services/storage/store-unavailable.js'

/** What it writes to stderr, and the exit code. */
function reported(error: unknown): { readonly text: string; readonly exitCode: number } {
  const written: string[] = []
  const stderr = vi.spyOn(process.stderr, 'write').mockImplementation((text) => written.push(String(text)) > 0)
  onTestFinished(() => stderr.mockRestore())
  const exitCode = report(error)
  return { text: written.join(''), exitCode }
}

test('an RPC that a service does not have is reported with the variable that names the service', () => {
  const { text, exitCode } = reported(new ConnectError('ExportSurveys is not served here', Code.Unimplemented))
  expect(text).toMatch(/is not served here\n.*SURVEY_SERVICE_URL/)
  expect(exitCode).toBe(1)
})

test('a call refused for the role of its certificate is reported with the variables that set the role', () => {
  const { text, exitCode } = reported(new ConnectError('gateway may not call ListApps', Code.PermissionDenied))
  expect(text).toMatch(/may not call ListApps\n.*operator.*RPC_CALLERS.*RPC_TLS_CERT\n$/)
  expect(exitCode).toBe(1)
})

test('of a database whose name has several addresses, the errors of all are reported in one line', () => {
  const refused = ['::1:5432', '127.0.0.1:5432'].map((address) => new Error(`connect ECONNREFUSED ${address}`))
  expect(reported(new StoreUnavailable(new AggregateError(refused)))).toEqual({
    text: 'survey-auth: the database is unavailable: connect ECONNREFUSED ::1:5432; connect ECONNREFUSED 127.0.0.1:5432\n',
    exitCode: 69,
  })
})

test.each([
  ['there is no such app: app_x', 'see them with: survey-auth app list'],
  ['there is no such secret: secret_x', 'see the ids with: survey-auth app secret list APPID'],
  [
    'there is no such user: eve',
    'see them with: survey-auth user list; a deleted one goes by the user_id in: survey-auth audit list',
  ],
  ['there is no such grant', 'see them with: survey-auth grant list'],
  ['there is no survey 99', 'see them with: survey-auth survey list'],
])('"%s" is followed by where to look', (text, hint) => {
  expect(reported(new ConnectError(text, Code.NotFound))).toEqual({
    text: `survey-auth: ${text}\n${hint}\n`,
    exitCode: 1,
  })
})
