// A TokenService and a SurveyService on SQLite, asked directly and by a process that keeps their answers.
import { randomBytes } from 'node:crypto'
import path from 'node:path'
import type { DescMethod } from '@bufbuild/protobuf'
import { onTestFinished, vi } from 'vitest'
import { SurveyService } from '../../gen/surveyauth/v1/survey_service_pb.js'
import { TokenService } from '../../gen/surveyauth/v1/token_service_pb.js'
import { mayCall } from '../../services/rpc/callers.js'
import { clientOf, type Invoke, type Outgoing } from '../../services/rpc/client.js'
import { createDirectDoor } from '../../services/rpc/direct-door.js'
import { Dispatcher } from '../../services/rpc/dispatcher.js'
import { keepingAnswers } from '../../services/rpc/kept-answers.js'
import { openSqliteSurveyStore } from '../../services/survey/store/sqlite/sqlite-survey-store.js'
import { createSurveyHandlers } from '../../services/survey/survey-service.js'
import { newCredential, newPlace, placeOf } from '../../services/token/credentials.js'
import { openSqliteTokenStore } from '../../services/token/store/sqlite/sqlite-token-store.js'
import type { TokenStore } from '../../services/token/store/token-store.js'
import { createTokenHandlers } from '../../services/token/token-service.js'
import { createUseRecorder } from '../../services/token/use-recorder.js'
import { temporaryDirectory } from '../store/temporary-directory.js'
import { grant, NOW, seed } from '../store/token-store-verbs.js'

/** `calls` are those that who keeps the answers makes; what is `behind` the surveys can be replaced, to fail. */
export async function startService() {
  const folder = temporaryDirectory()
  const [file, surveyFile] = [path.join(folder, 'token.db'), path.join(folder, 'survey.db')]
  const store = openSqliteTokenStore({ file })
  await seed(store)
  const uses = createUseRecorder(store)
  const time = { now: NOW }
  const onRevalidated = vi.fn()
  const unused = {} as never
  const deps = { store, uses, onRevalidated, randomBytes, rules: unused, passwords: unused, signInLimiter: unused }
  const dispatcher = new Dispatcher({ mayCall, onCall() {}, onUnexpected() {}, maxDeadlineMs: 5_000 })
  dispatcher.register(TokenService, createTokenHandlers({ ...deps, now: () => time.now }).token)
  onTestFinished(() => store.close())

  const direct = createDirectDoor(dispatcher, 'local')
  const surveyStore = openSqliteSurveyStore({ file: surveyFile })
  const token = clientOf(TokenService, direct)
  const behind = { token, surveys: surveyStore }
  const handlers = createSurveyHandlers({
    get store() {
      return behind.surveys
    },
    get token() {
      return behind.token
    },
    now: () => time.now,
  })
  dispatcher.register(SurveyService, handlers)
  onTestFinished(() => surveyStore.close())

  const calls: { readonly name: string; readonly traceparent: string; readonly validators: readonly Uint8Array[] }[] =
    []
  const counting = ((method: DescMethod, request: never, call: Outgoing) => {
    calls.push({ name: method.name, traceparent: call.traceparent, validators: [], ...(request as object) })
    return direct(method, request, call)
  }) as Invoke
  return {
    file,
    store,
    uses,
    time,
    onRevalidated,
    calls,
    names: () => calls.splice(0).map(({ name }) => name),
    direct: token,
    keeping: clientOf(TokenService, keepingAnswers(counting, TokenService.method.revalidateAnswers)),
    behind,
    surveyFile,
    survey: clientOf(SurveyService, direct),
    keepingSurveys: clientOf(SurveyService, keepingAnswers(counting, SurveyService.method.revalidateSurveys)),
  }
}

export type Service = Awaited<ReturnType<typeof startService>>

/** A grant as the flow makes one, and its access token as its holder presents it. */
export async function granted(store: TokenStore, username = 'ann') {
  const refreshTokenHash = newCredential('refreshToken', randomBytes, newPlace(NOW, randomBytes)).hash
  const access = newCredential('accessToken', randomBytes, placeOf(refreshTokenHash))
  const about = await grant(store, { username }, { refreshTokenHash, accessTokenHash: access.hash })
  const token = { appid: 'app1', accessToken: access.text }
  return { ...about, token, presented: { ...token, openid: about.openid } }
}

export type Granted = Awaited<ReturnType<typeof granted>>
