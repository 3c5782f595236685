import { expect, test, vi } from 'vitest'
import { requireAccessToken } from '../../services/token/access-token.js'
import type { TokenDeps } from '../../services/token/deps.js'
import { granted, startService } from '../answers/kept-service.js'
import { byOperator, NOW } from '../store/token-store-verbs.js'

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
