import { randomBytes } from 'node:crypto'
import path from 'node:path'
import { expect, onTestFinished, test, vi } from 'vitest'
import { ErrorReason } from '../../gen/surveyauth/v1/error_pb.js'
import { newCredential } from '../../services/token/credentials.js'
import type { TokenDeps } from '../../services/token/deps.js'
import { requireAccessToken } from '../../services/token/require-access-token.js'
import { openSqliteTokenStore } from '../../services/token/store/sqlite/sqlite-token-store.js'
import { createUseRecorder } from '../../services/token/use-recorder.js'
import { temporaryDirectory } from '../store/temporary-directory.js'
import { byOperator, byUser, grant, hashAt, NOW, seed } from '../store/token-store-verbs.js'

/** A grant as the flow makes one, its store, and its access token as its holder presents it. */
async function granted() {
  const store = openSqliteTokenStore({ file: path.join(temporaryDirectory(), 'token.db') })
  onTestFinished(() => store.close())
  await seed(store)
  const place = randomBytes(8)
  const [codeHash, refreshTokenHash] = [hashAt(place, 'code'), hashAt(place, 'refresh')]
  const access = newCredential('accessToken', randomBytes, place)
  const { grantId, openid } = await grant(store, {}, { codeHash, refreshTokenHash, accessTokenHash: access.hash })
  return { store, grantId, presented: { appid: 'app1', accessToken: access.text, openid } }
}

test('a good token is accepted when its app is enabled between the lookups of the token and of the app', async () => {
  const { store, presented } = await granted()
  await store.setAppDisabled(presented.appid, true, NOW, byOperator)
  const findApp = vi.fn(async (appid: string) => {
    await store.setAppDisabled(appid, false, NOW, byOperator)
    return store.findApp(appid)
  })
  const deps = { store: { ...store, findApp }, uses: createUseRecorder(store), now: () => NOW } as unknown as TokenDeps
  const token = await requireAccessToken(deps, presented)
  expect(token.openid).toBe(presented.openid)
  expect(findApp).toHaveBeenCalledOnce()
})

test('a revoked token is refused after one look at its app', async () => {
  const { store, presented, grantId } = await granted()
  await store.revokeGrant(grantId, NOW, byUser)
  const findApp = vi.fn(store.findApp)
  const deps = { store: { ...store, findApp }, uses: createUseRecorder(store), now: () => NOW } as unknown as TokenDeps
  const refused = requireAccessToken(deps, presented)
  await expect(refused).rejects.toMatchObject({ reason: ErrorReason.INVALID_TOKEN })
  expect(findApp).toHaveBeenCalledOnce()
})
