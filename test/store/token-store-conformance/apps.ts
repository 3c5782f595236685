import { expect } from 'vitest'
import { NO_FACE, NO_LOGO, type TokenStore } from '../../../services/token/store/token-store.js'
import type { Check } from '../conformance.js'
import {
  ACCESS_TTL,
  allPages,
  appRow,
  auditKinds,
  auditTrail,
  byOperator,
  CODE_TTL,
  DAY,
  findGrant,
  GRACE,
  grant,
  isGood,
  issue,
  mint,
  NOW,
  REFRESH_TTL,
  redeem,
  saidOf,
  secretRow,
  seed,
} from '../token-store-verbs.js'

export const appChecks: readonly Check<TokenStore>[] = [
  {
    title: 'an app is found as it was created, with its secret',
    async run(store) {
      const app = appRow('app1', {
        name: '问卷 "助手" <b>',
        redirectUris: ['https://a.example/?x=1&y=%20', 'http://127.0.0.1/b'],
        requiresSecretOnRefresh: true,
        readsAnswers: true,
      })
      const secret = secretRow('app1', 'default', { expiresAtMs: NOW + DAY })
      await store.createApp(app, secret, byOperator)
      expect(await store.findApp('app1')).toEqual(app)
      const [found] = await store.listAppSecrets('app1')
      expect({ ...found, secretHash: Buffer.from(found?.secretHash ?? []) }).toEqual(secret)
      expect(await auditTrail(store)).toMatchObject([
        { kind: 'app.created', appid: 'app1', atMs: NOW, ...saidOf(byOperator), userId: '', grantId: '' },
      ])
    },
  },
  {
    title: 'identifiers compare byte for byte',
    async run(store) {
      await seed(store)
      for (const appid of ['APP1', 'app1 ', ' app1', 'app', '']) {
        expect(await store.findApp(appid)).toBeUndefined()
      }
      for (const username of ['Ann', 'ANN', 'ann ', 'a%', '']) expect(await store.findUser(username)).toBeUndefined()
    },
  },
  {
    title: 'an app whose creation fails leaves no trace',
    async run(store) {
      await seed(store)
      const twice = store.createApp(appRow('app3'), secretRow('app1'), byOperator) // the secret's id is taken
      await expect(twice).rejects.toThrow()
      expect(await store.findApp('app3')).toBeUndefined()
      expect(await auditKinds(store, { appid: 'app3' })).toEqual([])
    },
  },
  {
    title: 'lists of apps ascend by appid and page without loss',
    async run(store) {
      const appids = ['b', 'a', 'B', 'c', '_', '10', '9']
      for (const [at, appid] of appids.entries()) {
        await store.createApp(appRow(appid, { name: `App ${at}` }), secretRow(appid), byOperator)
      }
      for (const limit of [1, 2, 7, 100]) {
        const listed = await allPages((page) => store.listApps(page), limit)
        expect(listed.map((app) => app.appid)).toEqual([...appids].sort())
      }
      expect((await store.listApps({ limit: 7, after: undefined })).next).toBeUndefined()
    },
  },
  {
    title: 'how an app presents itself is found as it was set, and its logo apart from it',
    async run(store) {
      await seed(store)
      const logo = { logoHash: 'hash', contentType: 'image/png', body: Buffer.of(0, 255, 7) }
      const texts = {
        homePage: 'https://a.example/',
        description: '问卷 <b>',
        contact: 'a@b',
        privacyLink: 'https://c/',
      }
      expect(await store.findAppFace('app1')).toEqual(NO_FACE)
      await store.createApp({ ...appRow('app3'), face: { ...texts, logo } }, secretRow('app3'), byOperator)
      expect(await store.findAppFace('app3')).toEqual({ ...texts, logoHash: 'hash' })
      expect(await store.findAppLogo('app3')).toEqual(logo)

      await store.updateApp('app1', { face: { logo } }, NOW, byOperator)
      await store.updateApp('app1', { name: 'new', face: { contact: 'a@b', logo } }, NOW, byOperator)
      await store.updateApp('app1', { face: { contact: 'a@b' } }, NOW, byOperator)
      expect(await store.findAppFace('app1')).toEqual({ ...NO_FACE, contact: 'a@b', logoHash: 'hash' })
      expect(await store.findAppLogo('app1')).toEqual(logo)
      await store.updateApp('app1', { face: { logo: NO_LOGO } }, NOW, byOperator)
      expect(await store.findAppFace('app1')).toEqual({ ...NO_FACE, contact: 'a@b' })
      for (const none of ['app1', 'app2', 'nobody']) expect(await store.findAppLogo(none)).toBeUndefined()
      const events = await auditTrail(store, { appid: 'app1' })
      expect(events.slice(1).map(({ note }) => note)).toEqual(['logo', 'name, contact', 'logo'])
    },
  },
  {
    title: 'an update of an app replaces what is given and keeps the rest',
    async run(store) {
      await seed(store)
      const expected = {
        ...appRow('app1'),
        redirectUris: ['https://new.example/'],
        requiresPkce: true,
        readsAnswers: true,
      }
      const { redirectUris, requiresPkce, readsAnswers } = expected
      const change = { redirectUris, requiresPkce, readsAnswers }
      expect(await store.updateApp('app1', change, NOW, byOperator)).toEqual(expected)
      expect(await store.findApp('app1')).toEqual(expected)
      expect(await store.findApp('app2')).toEqual(appRow('app2'))
      expect(await store.updateApp('nobody', change, NOW, byOperator)).toBeUndefined()
      expect(await auditKinds(store, { appid: 'app1' })).toEqual(['app.created', 'app.updated'])
    },
  },
  {
    title: 'once an app is disabled, its codes, exchanges, refreshes and tokens are refused',
    async run(store) {
      await seed(store)
      const { accessTokenHash, refreshTokenHash } = await grant(store)
      await issue(store, 'unused')
      expect(await store.setAppDisabled('app1', true, NOW, byOperator)).toMatchObject({ isDisabled: true })
      expect(await isGood(store, accessTokenHash)).toBe(false)
      expect(await mint(store, refreshTokenHash)).toMatchObject({ result: 'app_ended' })
      expect((await redeem(store, 'unused')).result).toEqual({ kind: 'app_ended' })
      expect(await issue(store, 'another')).toBe('app_ended')
      expect(await issue(store, 'of another app', { appid: 'app2' })).toBe('issued')
    },
  },
  {
    title: 'enabling an app again restores its grants, but not its unused codes, and replays still end grants',
    async run(store) {
      await seed(store)
      const { name, accessTokenHash, refreshTokenHash } = await grant(store)
      await issue(store, 'unused')
      await issue(store, 'of another app', { appid: 'app2' })
      await store.setAppDisabled('app1', true, NOW, byOperator)
      await store.setAppDisabled('app1', false, NOW, byOperator)
      expect(await isGood(store, accessTokenHash)).toBe(true)
      expect(await mint(store, refreshTokenHash)).toMatchObject({ result: 'minted' })
      expect((await redeem(store, 'unused')).result).toEqual({ kind: 'refused', replay: 'none' })
      expect((await redeem(store, 'of another app', { appid: 'app2' })).result.kind).toBe('redeemed')
      const replay = await redeem(store, name, {}, NOW + GRACE + 1)
      expect(replay.result).toEqual({ kind: 'refused', replay: 'revoked_grant' })
    },
  },
  {
    title: 'disabling an app that is already disabled leaves no event',
    async run(store) {
      await seed(store)
      await store.setAppDisabled('app1', true, NOW, byOperator)
      expect(await store.setAppDisabled('app1', true, NOW, byOperator)).toMatchObject({ isDisabled: true })
      await store.setAppDisabled('app1', false, NOW, byOperator)
      expect(await store.setAppDisabled('nobody', true, NOW, byOperator)).toBeUndefined()
      expect(await auditKinds(store, { appid: 'app1' })).toEqual(['app.created', 'app.disabled', 'app.enabled'])
    },
  },
  {
    title: 'a deleted app is found no more, and its appid is never given to another one',
    async run(store) {
      await seed(store)
      await store.updateApp('app1', { face: { contact: 'a@b.example', logo: NO_LOGO } }, NOW, byOperator)
      expect(await store.deleteApp('app1', NOW + 1, byOperator)).toBe('deleted')
      expect(await store.findApp('app1')).toBeUndefined()
      expect((await store.listApps({ limit: 10, after: undefined })).rows.map(({ appid }) => appid)).toEqual(['app2'])
      expect(await store.listAppSecrets('app1')).toEqual([])
      expect(await store.findAppFace('app1')).toEqual(NO_FACE)
      expect(await store.isAppid('app1')).toBe(true)
      expect(await store.isAppid('nobody')).toBe(false)

      expect(await store.createApp(appRow('app1'), secretRow('app1', 'next'), byOperator)).toBeUndefined()
      expect(await store.updateApp('app1', { name: 'N' }, NOW + 2, byOperator)).toBeUndefined()
      expect(await store.setAppDisabled('app1', false, NOW + 2, byOperator)).toBeUndefined()
      expect(await store.addAppSecret(secretRow('app1', 'next'), NOW + 2, byOperator)).toBe('no_app')
      expect(await issue(store, 'code')).toBe('app_ended')
      expect((await redeem(store, 'code')).result.kind).toBe('app_ended')
      expect(await store.deleteApp('app1', NOW + 2, byOperator)).toBe('not_found')
      expect(await store.deleteApp('nobody', NOW + 2, byOperator)).toBe('not_found')
      expect(await auditTrail(store, { appid: 'app1' })).toMatchObject([
        { kind: 'app.created', note: 'App app1' },
        { kind: 'app.updated' },
        { kind: 'app.deleted', note: 'App app1', atMs: NOW + 1, ...saidOf(byOperator) },
      ])
    },
  },
  {
    title:
      'an app is deleted once its grants and codes have ended, and not 1 ms before; grants that ended are still listed',
    async run(store) {
      await seed(store)
      const deleteApp = (appid: string, now: number) => store.deleteApp(appid, now, byOperator)
      await issue(store, 'of app1')
      await issue(store, 'of app2', { appid: 'app2' })
      expect(await deleteApp('app1', NOW + CODE_TTL - 1)).toBe('has_codes')
      expect(await deleteApp('app1', NOW + CODE_TTL)).toBe('deleted')
      const { refreshTokenHash, grantId } = await grant(store, { appid: 'app2' }, { maxGrants: 1 })
      await redeem(store, 'of app2', { appid: 'app2', maxGrants: 100 })
      const late = NOW + REFRESH_TTL - 1
      expect((await mint(store, refreshTokenHash, { appid: 'app2' }, late)).result).toBe('minted')
      expect(await deleteApp('app2', late + ACCESS_TTL - 1)).toBe('has_grants')
      expect(
        await isGood(store, (await mint(store, refreshTokenHash, { appid: 'app2' }, late)).accessTokenHash, late),
      ).toBe(true)
      expect(await deleteApp('app2', late + ACCESS_TTL)).toBe('deleted')
      expect(await findGrant(store, grantId)).toMatchObject({ appid: 'app2', appName: 'App app2' })
    },
  },
  {
    title: 'an app whose grants are all revoked, and whose codes have ended, is deleted',
    async run(store) {
      await seed(store)
      const { grantId } = await grant(store)
      await issue(store, 'unused')
      expect(await store.deleteApp('app1', NOW, byOperator)).toBe('has_grants')
      await store.revokeGrant(grantId, NOW, byOperator) // and ends the code
      expect(await store.deleteApp('app1', NOW, byOperator)).toBe('deleted')
      expect((await redeem(store, 'unused')).result.kind).toBe('app_ended')
    },
  },
  {
    title: 'an app that is deleted while codes are issued and exchanged has no good token afterwards',
    async run(store) {
      await seed(store)
      for (let round = 0; round < 5; round += 1) {
        const appid = `app r${round}`
        await store.createApp(appRow(appid, { redirectUris: ['https://r.example/'] }), secretRow(appid), byOperator)
        const use = async (name: string) => {
          const issued = await issue(store, name, { appid, redirectUri: 'https://r.example/' })
          return issued === 'issued' ? (await redeem(store, name, { appid })).result.kind : issued
        }
        const names = Array.from({ length: 8 }, (_, n) => `${appid} ${n}`)
        const [deletion, ...used] = await Promise.all([store.deleteApp(appid, NOW, byOperator), ...names.map(use)])
        const uses = new Set(used)
        expect(deletion === 'deleted' ? uses : deletion).toEqual(
          deletion === 'deleted' ? new Set(['app_ended']) : expect.stringMatching(/^has_(codes|grants)$/),
        )
        const live = await store.listGrants({ appid, liveAtMs: NOW }, { limit: 10, after: undefined })
        expect(live.rows.length).toBe(deletion === 'deleted' ? 0 : names.length)
      }
    },
  },
  {
    title: 'live secrets of one app must have different names; an ended secret frees its name',
    async run(store) {
      await seed(store)
      const add = (rest: object, now = NOW) =>
        store.addAppSecret(secretRow('app1', 'next', { secretId: `s${Math.random()}`, ...rest }), now, byOperator)
      expect(await add({ expiresAtMs: NOW + DAY })).toBe('added')
      expect(await add({})).toBe('name_taken')
      expect(await add({}, NOW + DAY - 1)).toBe('name_taken')
      expect(await add({ secretId: 'after expiry' }, NOW + DAY)).toBe('added')
      expect(await store.revokeAppSecret('app1', 'after expiry', NOW + DAY, byOperator)).toBe('revoked')
      expect(await add({}, NOW + DAY)).toBe('added')
      expect(await add({ appid: 'app2' })).toBe('added')
      expect(await add({ appid: 'nobody' })).toBe('no_app')
    },
  },
  {
    title: 'secrets are listed oldest first, ended ones included',
    async run(store) {
      await seed(store)
      await store.addAppSecret(secretRow('app1', 'a third', { createdAtMs: NOW + 2 }), NOW + 2, byOperator)
      await store.addAppSecret(secretRow('app1', 'second', { createdAtMs: NOW + 1 }), NOW + 1, byOperator)
      await store.revokeAppSecret('app1', 'secret_app1_default', NOW + 3, byOperator)
      const secrets = await store.listAppSecrets('app1')
      expect(secrets.map((secret) => secret.name)).toEqual(['default', 'second', 'a third'])
      expect(secrets.map((secret) => secret.revokedAtMs)).toEqual([NOW + 3, undefined, undefined])
      expect(await store.listAppSecrets('nobody')).toEqual([])
    },
  },
  {
    title: 'a secret is revoked only through its own app, and a second revocation keeps the time of the first',
    async run(store) {
      await seed(store)
      expect(await store.revokeAppSecret('app2', 'secret_app1_default', NOW, byOperator)).toBe('not_found')
      expect(await store.revokeAppSecret('app1', 'nothing', NOW, byOperator)).toBe('not_found')
      expect(await store.revokeAppSecret('app1', 'secret_app1_default', NOW + 1, byOperator)).toBe('revoked')
      expect(await store.revokeAppSecret('app1', 'secret_app1_default', NOW + 2, byOperator)).toBe('already_revoked')
      expect(await store.listAppSecrets('app1')).toMatchObject([{ revokedAtMs: NOW + 1 }])
      expect(await auditKinds(store, { appid: 'app1' })).toEqual(['app.created', 'secret.revoked'])
    },
  },
  {
    title: 'no exchange or refresh with a revoked secret succeeds',
    async run(store) {
      await seed(store)
      const { refreshTokenHash } = await grant(store)
      await issue(store, 'code')
      await store.revokeAppSecret('app1', 'secret_app1_default', NOW, byOperator)
      expect((await redeem(store, 'code')).result).toEqual({ kind: 'secret_ended' })
      const withSecret = { secretId: 'secret_app1_default' }
      expect(await mint(store, refreshTokenHash, withSecret)).toMatchObject({ result: 'secret_ended' })
      expect(await mint(store, refreshTokenHash)).toMatchObject({ result: 'minted' })
    },
  },
  {
    title: 'removing a redirect_uri ends the unused codes issued for it, also when the clock is ahead meanwhile',
    async run(store) {
      await seed(store)
      const added = 'https://added.example/'
      const register = (redirectUris: string[], now: number) =>
        store.updateApp('app1', { redirectUris }, now, byOperator)
      const { redirectUris } = appRow('app1')
      await register([...redirectUris, added], NOW)
      await issue(store, 'of the removed', { redirectUri: added })
      await issue(store, 'of the kept')
      await register([...redirectUris], NOW + DAY / 24 - 1)
      expect(await issue(store, 'asked for before', { redirectUri: added })).toBe('redirect_uri_ended')
      expect((await redeem(store, 'of the removed')).result).toEqual({ kind: 'refused', replay: 'none' })
      expect((await redeem(store, 'of the kept')).result).toMatchObject({ kind: 'redeemed' })
    },
  },
  {
    title: 'once an app requires a secret on refresh, a refresh without one is refused',
    async run(store) {
      await seed(store)
      const { refreshTokenHash } = await grant(store)
      const { redirectUris } = appRow('app1')
      await store.updateApp('app1', { redirectUris, requiresSecretOnRefresh: true }, NOW, byOperator)
      expect((await mint(store, refreshTokenHash)).result).toBe('secret_ended')
      expect((await mint(store, refreshTokenHash, { secretId: 'secret_app1_default' })).result).toBe('minted')
      await store.updateApp('app1', { redirectUris, requiresSecretOnRefresh: false }, NOW, byOperator)
      expect((await mint(store, refreshTokenHash)).result).toBe('minted')
    },
  },
  {
    title: 'a secret is good until 1 ms before its expiry, and only for its own app',
    async run(store) {
      await seed(store)
      await store.addAppSecret(secretRow('app1', 'short', { expiresAtMs: NOW + 1000 }), NOW, byOperator)
      const { refreshTokenHash } = await grant(store)
      const withShort = { secretId: 'secret_app1_short' }
      expect((await mint(store, refreshTokenHash, withShort, NOW + 999)).result).toBe('minted')
      expect((await mint(store, refreshTokenHash, withShort, NOW + 1000)).result).toBe('secret_ended')
      expect((await mint(store, refreshTokenHash, withShort, NOW + 1001)).result).toBe('secret_ended')
      const ofApp2 = { secretId: 'secret_app2_default' }
      expect((await mint(store, refreshTokenHash, ofApp2)).result).toBe('secret_ended')
    },
  },
]
