// What a signed-in user sees and changes of their own account.
import type { MessageInitShape } from '@bufbuild/protobuf'
import { timestampFromMs } from '@bufbuild/protobuf/wkt'
import type {
  ChangePasswordRequest,
  EndSessionsRequest,
  GetAccountRequest,
  GetAccountResponseSchema,
  SessionSchema,
  SignInProviderSchema,
  SignInWaySchema,
} from '../../../gen/surveyauth/v1/account_service_pb.js'
import { judgeSession } from '../../protocol/sessions.js'
import { FRESH_AUTHENTICATION_MS } from '../../protocol/sign-in-requests.js'
import { judgeUnlinking } from '../../protocol/unlinking.js'
import type { Call } from '../../rpc/dispatcher.js'
import { causedBy } from '../../storage/cause.js'
import type { TokenDeps } from '../deps.js'
import { invalidSession, requireSession } from '../session.js'
import { openWays, type SignInMethods } from '../sign-in-methods.js'
import { type Hash, type OpenSession, placeholderName, type SessionRow } from '../store/token-store.js'
import { byPassword } from './sign-in.js'

export function getAccount(deps: TokenDeps) {
  return async ({ sessionToken }: GetAccountRequest): Promise<MessageInitShape<typeof GetAccountResponseSchema>> => {
    const session = await requireSession(deps, sessionToken)
    const { userId } = session
    const [user, identities, sessions] = await Promise.all([
      deps.store.findUserById(userId),
      deps.store.listIdentities(userId),
      deps.store.listSessions(userId),
    ])
    if (!user) throw invalidSession()
    const { signInMethods } = deps
    return {
      username: user.username === placeholderName(userId) ? '' : user.username,
      nickname: user.nickname,
      avatar: user.avatar,
      hasPassword: signInMethods.password && user.passwordHash !== '',
      way: wayFor(signInMethods, session),
      justBegan: hasJustBegun(session, deps.now()),
      identities: identities.map(({ provider, subject, createdAtMs }) => ({
        provider: providerFor(signInMethods, provider),
        subject,
        createTime: timestampFromMs(createdAtMs),
        canUnlink:
          judgeUnlinking({ provider, subject }, { ...user, identities }, openWays(signInMethods)) === 'unlinked',
      })),
      sessions: openSessions(deps, sessions, session.sessionHash),
    }
  }
}

export function hasJustBegun({ startedAtMs }: Pick<SessionRow, 'startedAtMs'>, now: number): boolean {
  return now - startedAtMs <= FRESH_AUTHENTICATION_MS
}

/** This one first, then the one last seen first. */
function openSessions(
  { rules, now, signInMethods }: TokenDeps,
  sessions: readonly OpenSession[],
  thisHash: Hash,
): MessageInitShape<typeof SessionSchema>[] {
  const idleMs = rules.sessionIdleSeconds * 1000
  return sessions
    .filter((session) => judgeSession(session, idleMs, now()) !== 'ended')
    .map((session) => ({ session, isThis: Buffer.compare(session.sessionHash, thisHash) === 0 }))
    .sort((a, b) => Number(b.isThis) - Number(a.isThis) || b.session.lastSeenAtMs - a.session.lastSeenAtMs)
    .map(({ session, isThis }) => ({
      sessionId: Buffer.from(session.sessionHash).toString('base64url'),
      isThis,
      startTime: timestampFromMs(session.startedAtMs),
      lastSeenTime: timestampFromMs(session.lastSeenAtMs),
      browser: session.browser,
      way: wayFor(signInMethods, session),
    }))
}

export function wayFor(
  methods: SignInMethods,
  { way, provider }: Pick<OpenSession, 'way' | 'provider'>,
): MessageInitShape<typeof SignInWaySchema> {
  if (way === 'provider') return { provider: providerFor(methods, provider) }
  return { password: way === 'password' }
}

export function providerFor(
  { providers }: SignInMethods,
  provider: string,
): MessageInitShape<typeof SignInProviderSchema> {
  const { en: labelEn, zh: labelZh } = providers.get(provider)?.settings.label ?? { en: provider, zh: provider }
  return { provider, labelEn, labelZh }
}

export function endSessions(deps: TokenDeps) {
  return async ({ sessionToken, sessionId }: EndSessionsRequest, call: Call) => {
    const { userId, sessionHash } = await requireSession(deps, sessionToken)
    const which = sessionId === '' ? { allBut: sessionHash } : { only: Buffer.from(sessionId, 'base64url') }
    return { sessions: await deps.store.endSessions({ userId, ...which }, deps.now(), causedBy('user', call)) }
  }
}

export function changePassword(deps: TokenDeps) {
  return async ({ sessionToken, currentPassword, newPassword, source }: ChangePasswordRequest, call: Call) => {
    const { username, userId, sessionHash } = await requireSession(deps, sessionToken)
    await byPassword(deps, { username, password: currentPassword, source }, call, async ({ passwordHash }, hashing) => {
      const newPasswordHash = await hashing.hash(newPassword)
      const change = { userId, passwordHash, newPasswordHash, sessionHash }
      return (await deps.store.changePassword(change, deps.now(), causedBy('user', call))) || undefined
    })
    return {}
  }
}
