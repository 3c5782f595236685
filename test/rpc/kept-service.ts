// A TokenService and a SurveyService on SQLite, asked directly and by a process that keeps their answers.
import { randomBytes } from 'node:crypto'
import path from 'node:path'
import type { DescMethod, Message } from '@bufbuild/protobuf'
import { ConnectError } from '@connectrpc/connect'
import { expect, onTestFinished, vi } from 'vitest'
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
import { ACCESS_TTL, byOperator, byUser, grant, mint, NOW, seed } from '../store/token-store-verbs.js'

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

/** What each call is answered, or why not. */
export async function outcomesOf(calls: readonly Promise<Message>[]): Promise<unknown[]> {
  const settled = await Promise.allSettled(calls)
  return settled.map((one) => (one.status === 'fulfilled' ? one.value : ConnectError.from(one.reason).message))
}

export interface Ending {
  readonly title: string
  readonly end: (service: Service, of: Granted) => Promise<unknown>
}

/** What ends an access token. */
export const endings: readonly Ending[] = [
  { title: 'its grant is revoked', end: ({ store }, { grantId }) => store.revokeGrant(grantId, NOW, byUser) },
  { title: 'its app is disabled', end: ({ store }) => store.setAppDisabled('app1', true, NOW, byOperator) },
  { title: 'its user is disabled', end: ({ store }) => store.setUserDisabled('ann', true, NOW, byOperator) },
  {
    title: 'a refresh replaces it',
    end: ({ store }, { refreshTokenHash }) => mint(store, refreshTokenHash, { overlapMs: 0 }),
  },
  {
    title: 'it expires',
    async end({ time }) {
      time.now = NOW + ACCESS_TTL
    },
  },
  {
    title: 'another process revokes its grant',
    async end({ file }, { grantId }) {
      const other = openSqliteTokenStore({ file })
      await other.revokeGrant(grantId, NOW, byOperator)
      await other.close()
    },
  },
]

/** From when `end` has changed what ann is answered, who keeps answers gives those of the service, and bob's stay as they are. */
export async function expectChanged<Client>(
  service: Service,
  { end }: Ending,
  [direct, keeping]: readonly [Client, Client],
  answersOf: (client: Client, of: Granted) => Promise<unknown[]>,
): Promise<void> {
  const [ann, bob] = [await granted(service.store), await granted(service.store, 'bob')]
  const good = await answersOf(keeping, ann)
  expect(await answersOf(keeping, ann)).toEqual(good)
  await answersOf(keeping, bob)

  await end(service, ann)
  for (let i = 0; i < 2; i += 1) {
    const said = await Promise.all([ann, bob].map((one) => answersOf(direct, one)))
    expect(said[0]).not.toEqual(good)
    expect(await Promise.all([ann, bob].map((one) => answersOf(keeping, one)))).toEqual(said)
  }
}
