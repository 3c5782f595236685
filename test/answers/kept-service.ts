// A TokenService and a SurveyService on SQLite, called directly, by a process that keeps their answers, and by one that
// also holds leases.
import { randomBytes } from 'node:crypto'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import type { DescMethod, Message } from '@bufbuild/protobuf'
import { ConnectError } from '@connectrpc/connect'
import { expect, onTestFinished, vi } from 'vitest'
import { LeaseService } from '../../gen/surveyauth/v1/lease_service_pb.js'
import { SurveyService } from '../../gen/surveyauth/v1/survey_service_pb.js'
import { TokenService } from '../../gen/surveyauth/v1/token_service_pb.js'
import { HeldLease } from '../../services/answers/held-lease.js'
import { keepingAnswers } from '../../services/answers/kept-answers.js'
import { createLeaseHandlers, LEASE_MS, Leases } from '../../services/answers/leases.js'
import { mayCall } from '../../services/rpc/callers.js'
import { clientOf, type Invoke, type Outgoing } from '../../services/rpc/client.js'
import { createDirectDoor } from '../../services/rpc/direct-door.js'
import { Dispatcher } from '../../services/rpc/dispatcher.js'
import { openSqliteSurveyStore } from '../../services/survey/store/sqlite/sqlite-survey-store.js'
import { createSurveyHandlers } from '../../services/survey/survey-service.js'
import { newCredential, newPlace, placeOf } from '../../services/token/credentials.js'
import { openSqliteTokenStore } from '../../services/token/store/sqlite/sqlite-token-store.js'
import type { TokenStore } from '../../services/token/store/token-store.js'
import { createTokenHandlers } from '../../services/token/token-service.js'
import { createUseRecorder } from '../../services/token/use-recorder.js'
import { temporaryDirectory } from '../store/temporary-directory.js'
import { ACCESS_TTL, byOperator, byUser, grant, mint, NOW, seed } from '../store/token-store-verbs.js'

/**
 * `calls` are those made by the process that keeps answers; the service `behind` the surveys can be replaced by one that
 * fails. News of leases that their holder `hears` can be delayed.
 */
export async function startService() {
  const folder = temporaryDirectory()
  const [file, surveyFile] = [path.join(folder, 'token.db'), path.join(folder, 'survey.db')]
  const [leases, surveyLeases] = [new Leases(), new Leases()]
  const store = openSqliteTokenStore({ file, leases })
  await seed(store)
  const uses = createUseRecorder(store)
  const time = { now: NOW }
  const onRevalidated = vi.fn()
  const unused = {} as never
  const deps = { store, uses, onRevalidated, randomBytes, rules: unused, passwords: unused, signInLimiter: unused }
  const now = () => time.now
  const direct = doorOf((dispatcher) =>
    dispatcher
      .register(LeaseService, createLeaseHandlers(leases))
      .register(TokenService, createTokenHandlers({ ...deps, leases, now }).token),
  )
  onTestFinished(() => store.close())

  const surveyStore = openSqliteSurveyStore({ file: surveyFile, leases: surveyLeases })
  const token = clientOf(TokenService, direct)
  const behind = { token, surveys: surveyStore }
  const surveyDeps = {
    get store() {
      return behind.surveys
    },
    get token() {
      return behind.token
    },
    leases: surveyLeases,
    now,
  }
  const surveyDirect = doorOf((dispatcher) =>
    dispatcher
      .register(LeaseService, createLeaseHandlers(surveyLeases))
      .register(SurveyService, createSurveyHandlers(surveyDeps)),
  )
  onTestFinished(() => surveyStore.close())

  const calls: { readonly name: string; readonly traceparent: string; readonly validators: readonly Uint8Array[] }[] =
    []
  const hears = { afterMs: 0 }
  const counted = (door: Invoke) =>
    (async (method: DescMethod, request: never, call: Outgoing) => {
      const isOfLease = method.parent.typeName === LeaseService.typeName
      if (!isOfLease)
        calls.push({ name: method.name, traceparent: call.traceparent, validators: [], ...(request as object) })
      const answer = await door(method, request, call)
      if (isOfLease && hears.afterMs > 0) await sleep(hears.afterMs)
      return answer
    }) as Invoke
  const [tokens, surveys] = [counted(direct), counted(surveyDirect)]
  const { revalidateAnswers } = TokenService.method
  const { revalidateSurveys } = SurveyService.method
  const [lease, surveyLease] = [new HeldLease(tokens, 1), new HeldLease(surveys, 1)]
  const onHeld = vi.fn()
  return {
    file,
    store,
    uses,
    time,
    onRevalidated,
    calls,
    names: () => calls.splice(0).map(({ name }) => name),
    direct: token,
    keeping: clientOf(TokenService, keepingAnswers(tokens, revalidateAnswers)),
    leasing: clientOf(TokenService, keepingAnswers(tokens, revalidateAnswers, { leases: [lease], now, onHeld })),
    lease,
    leases,
    invoke: direct,
    hears,
    onHeld,
    behind,
    surveyFile,
    survey: clientOf(SurveyService, surveyDirect),
    keepingSurveys: clientOf(SurveyService, keepingAnswers(surveys, revalidateSurveys)),
    leasingSurveys: clientOf(
      SurveyService,
      keepingAnswers(surveys, revalidateSurveys, { leases: [surveyLease, lease], now, onHeld }),
    ),
  }
}

function doorOf(register: (dispatcher: Dispatcher) => Dispatcher): Invoke {
  const dispatcher = new Dispatcher({ mayCall, onCall() {}, onUnexpected() {}, maxDeadlineMs: 5_000 })
  return createDirectDoor(register(dispatcher), 'local')
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

/** Each call's answer, or why it failed. */
export async function outcomesOf(calls: readonly Promise<Message>[]): Promise<unknown[]> {
  const settled = await Promise.allSettled(calls)
  return settled.map((one) => (one.status === 'fulfilled' ? one.value : ConnectError.from(one.reason).message))
}

/**
 * Asks until the holder of leases, which from then on hears of changes late, answers without asking the service; and until no
 * lease of an earlier process, for which writes would wait too, can be in force.
 */
export async function untilHeld({ onHeld, hears }: Service, ask: () => Promise<unknown>): Promise<void> {
  await vi.waitFor(async () => {
    onHeld.mockClear()
    await ask()
    expect(onHeld).toHaveBeenCalled()
  })
  for (const until = performance.now() + LEASE_MS; performance.now() < until; await sleep(20)) await ask()
  hears.afterMs = 40
}

export interface Ending {
  readonly title: string
  readonly end: (service: Service, of: Granted) => Promise<unknown>
}

/** Everything that ends an access token. */
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

/** Once `end` has changed ann's answers, the process that keeps them gives the service's new ones, and bob's stay the same. */
export async function expectChanged<Client>(
  service: Service,
  { end }: Ending,
  [direct, keeping]: readonly [Client, Client],
  answersOf: (client: Client, of: Granted) => Promise<unknown[]>,
  untilReady: (ask: () => Promise<unknown>) => Promise<unknown> = (ask) => ask(),
): Promise<void> {
  const [ann, bob] = [await granted(service.store), await granted(service.store, 'bob')]
  const good = await answersOf(keeping, ann)
  expect(await answersOf(keeping, ann)).toEqual(good)
  await untilReady(() => Promise.all([ann, bob].map((one) => answersOf(keeping, one))))

  await end(service, ann)
  for (let i = 0; i < 2; i += 1) {
    const said = await Promise.all([ann, bob].map((one) => answersOf(direct, one)))
    expect(said[0]).not.toEqual(good)
    expect(await Promise.all([ann, bob].map((one) => answersOf(keeping, one)))).toEqual(said)
  }
}
