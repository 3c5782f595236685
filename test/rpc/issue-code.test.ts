import { randomBytes } from 'node:crypto'
import path from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { ErrorReason } from '../../gen/surveyauth/v1/error_pb.js'
import type { IssueCodeRequest } from '../../gen/surveyauth/v1/token_service_pb.js'
import type { Call } from '../../services/rpc/dispatcher.js'
import { newCredential } from '../../services/token/credentials.js'
import type { TokenDeps } from '../../services/token/deps.js'
import { issueCode } from '../../services/token/issue-code.js'
import { openSqliteTokenStore } from '../../services/token/store/sqlite/sqlite-token-store.js'
import { temporaryDirectory } from '../store/temporary-directory.js'
import { appRow, byOperator, NOW, seed, startSession } from '../store/token-store-verbs.js'

test('a code that is refused to a disabled app says so, also when the app is enabled again at once', async () => {
  const store = openSqliteTokenStore({ file: path.join(temporaryDirectory(), 'token.db') })
  onTestFinished(() => store.close())
  await seed(store)
  const session = newCredential('session', randomBytes)
  await startSession(store, '', { sessionHash: session.hash })
  const issuing: typeof store.issueCode = async (...args) => {
    await store.setAppDisabled('app1', true, NOW, byOperator)
    const outcome = await store.issueCode(...args)
    await store.setAppDisabled('app1', false, NOW, byOperator)
    return outcome
  }
  const rules = { sessionIdleSeconds: 60, codeTtlSeconds: 60, maxLiveCodesPerUserAndApp: 9 }
  const deps = { store: { ...store, issueCode: issuing }, rules, now: () => NOW } as unknown as TokenDeps
  const request = {
    sessionToken: session.text,
    requestId: 'form 1',
    appid: 'app1',
    redirectUri: appRow('app1').redirectUris[0],
    scope: 'snsapi_user',
    codeChallenge: '',
    permissions: [],
    consentVersion: '',
  } as unknown as IssueCodeRequest
  const call = { requestId: 'request 1', deadlineMs: Number.POSITIVE_INFINITY } as Call
  await expect(issueCode(deps)(request, call)).rejects.toMatchObject({ reason: ErrorReason.INVALID_APPID })
})
