import { expect, test, vi } from 'vitest'
import { ErrorReason } from '../../gen/surveyauth/v1/error_pb.js'
import { requireAccessToken } from '../../services/token/access-token.js'
import type { TokenDeps } from '../../services/token/deps.js'
import { granted, startService } from '../answers/kept-service.js'
import { byOperator, byUser, NOW } from '../store/token-store-verbs.js'

test('a good token is accepted when its app is enabled between the lookups of the token and of the app', async () => {
  const { store, uses } = await startService()
  const { presented, openid } = await granted(store)
  await store.setAppDisabled(presented.appid, true, NOW, byOperator)
  const findApp = vi.fn(async (appid: string) => {
    await store.setAppDisabled(appid, false, NOW, byOperator)
    return store.findApp(appid)
  })
  const deps = { store: { ...store, findApp }, uses, now: () => NOW } as unknown as TokenDeps
  const { token } = await requireAccessToken(deps, { ...presented, wantsValidator: false })
  expect(token.openid).toBe(openid)
  expect(findApp).toHaveBeenCalledOnce()
})

test('a revoked token is refused after one look at its app', async () => {
  const { store, uses } = await startService()
  const { presented, grantId } = await granted(store)
  await store.revokeGrant(grantId, NOW, byUser)
  const findApp = vi.fn(store.findApp)
  const deps = { store: { ...store, findApp }, uses, now: () => NOW } as unknown as TokenDeps
  const refused = requireAccessToken(deps, { ...presented, wantsValidator: false })
  await expect(refused).rejects.toMatchObject({ reason: ErrorReason.INVALID_TOKEN })
  expect(findApp).toHaveBeenCalledOnce()
})
