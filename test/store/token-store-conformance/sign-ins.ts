// Sign-ins that go on elsewhere. Which decisions are good is tested in test/protocol/sign-in-requests.test.ts.
import { expect } from 'vitest'
import type { Cause } from '../../../services/storage/cause.js'
import type { NewSignIn, Person, TokenStore } from '../../../services/token/store/token-store.js'
import type { Check } from '../conformance.js'
import {
  auditKinds,
  auditTrail,
  byOperator,
  byUser,
  DAY,
  grant,
  hashOf,
  isGood,
  MINUTE,
  NOW,
  seed,
  sessionOf,
  startSession,
  userRow,
} from '../token-store-verbs.js'

const byPlatform: Cause = { ...byOperator, actor: 'sign_in' }

function signIn(name: string, rest: Partial<NewSignIn> = {}): NewSignIn {
  return {
    challengeHash: hashOf(`challenge ${name}`),
    browserHash: hashOf('browser'),
    source: '192.0.2.1',
    provider: '',
    linkTo: '',
    appid: 'app1',
    redirectUri: 'https://app1.example/callback',
    returnUri: 'https://here.example/return',
    restartUri: 'https://here.example/authorize?appid=app1',
    language: 'zh',
    asksToReauthenticate: false,
    asksToSelectAccount: true,
    expiresAtMs: NOW + 30 * MINUTE,
    ...rest,
  }
}

const begin = (store: TokenStore, name: string, rest: Partial<NewSignIn> = {}) =>
  store.beginSignIn(signIn(name, rest), NOW, byUser)

function person(subject: string, rest: Partial<Person> = {}): Person {
  const profile = { nickname: `Nick ${subject}`, avatar: '' }
  return {
    provider: '',
    subject,
    sid: '',
    ...profile,
    authenticatedAtMs: 0,
    mayCreate: true,
    sessionSeconds: 600,
    ...rest,
  }
}

/** The verdict; the browser gets the verifier of this name. */
async function accept(store: TokenStore, name: string, who: Person, verifier = name, now = NOW) {
  const good = { verifierHash: hashOf(`verifier ${verifier}`), verifierExpiresAtMs: now + MINUTE }
  return (await store.acceptSignIn(hashOf(`challenge ${name}`), who, good, now, byPlatform)).verdict
}

let sessions = 0
function complete(
  store: TokenStore,
  verifier: string,
  rest: Partial<Parameters<TokenStore['completeSignIn']>[0]> = {},
  now = NOW,
) {
  const returned = {
    verifierHash: hashOf(`verifier ${verifier}`),
    browserHash: hashOf('browser'),
    newUserId: `user_new_${++sessions}`,
    browser: 'Safari, iOS',
    sessionHash: hashOf(`session elsewhere ${sessions}`),
    previousSessionHash: undefined,
    maxLive: 100,
    ...rest,
  }
  return store.completeSignIn(returned, now, byUser)
}

async function verdictOf(...args: Parameters<typeof complete>) {
  return (await complete(...args)).verdict
}

export const signInChecks: readonly Check<TokenStore>[] = [
  {
    title: 'a sign-in elsewhere is found as it began, decided, and over, until it is removed',
    async run(store) {
      await seed(store)
      expect(await begin(store, 'one')).toBe('begun')
      const challengeHash = hashOf('challenge one')
      const found = async () => {
        const row = await store.findSignIn(challengeHash)
        return (
          row && { ...row, challengeHash: Buffer.from(row.challengeHash), browserHash: Buffer.from(row.browserHash) }
        )
      }
      expect(await found()).toMatchObject({ ...signIn('one'), state: 'pending', subject: '' })
      expect(await store.findSignIn(hashOf('challenge two'))).toBeUndefined()
      expect(await accept(store, 'one', person('4711'))).toBe('decided')
      expect(await found()).toMatchObject({ ...signIn('one'), state: 'accepted', subject: '4711', mayCreate: true })
      expect(await verdictOf(store, 'one')).toBe('created')
      expect(await found()).toMatchObject({ ...signIn('one'), state: 'done', nickname: '' })
      const { expiresAtMs } = signIn('one')
      expect(await store.removeSignIns({ expiredBeforeMs: expiresAtMs, limit: 9 })).toBe(0)
      expect(await store.removeSignIns({ expiredBeforeMs: expiresAtMs + 1, limit: 9 })).toBe(1)
      expect(await found()).toBeUndefined()
    },
  },
  {
    title: 'somebody new becomes a user at the first return, and is that user from then on, with the newest profile',
    async run(store) {
      await seed(store)
      await begin(store, 'one')
      await accept(store, 'one', person('4711', { nickname: '安', avatar: 'https://img.example/a' }))
      expect(await store.findUserByExternalId('4711')).toBeUndefined()
      const sessionHash = hashOf('fresh')
      expect(await complete(store, 'one', { newUserId: 'user_x', sessionHash })).toMatchObject({
        verdict: 'created',
        sessionExpiresAtMs: NOW + 600_000,
        signIn: { restartUri: signIn('one').restartUri },
      })
      const user = { userId: 'user_x', username: '~user_x', externalId: '4711', passwordHash: '', nickname: '安' }
      expect(await store.findUserByExternalId('4711')).toMatchObject({ ...user, avatar: 'https://img.example/a' })
      expect(await store.findSession(sessionHash)).toMatchObject({ userId: 'user_x', expiresAtMs: NOW + 600_000 })

      await begin(store, 'two')
      await accept(store, 'two', person('4711', { nickname: 'An' }))
      expect(await verdictOf(store, 'two', { previousSessionHash: sessionHash })).toBe('signed_in')
      expect(await store.findUserById('user_x')).toMatchObject({ nickname: 'An', avatar: 'https://img.example/a' })
      expect(await store.findSession(sessionHash)).toBeUndefined()
      const events = await auditTrail(store, { userId: 'user_x' })
      expect(events.map(({ kind, note }) => [kind, note])).toEqual([
        ['user.created', 'external_id 4711'],
        ['session.started', 'by the platform'],
        ['user.updated', 'nickname'],
        ['session.ended', 'signed in again'],
        ['session.started', 'by the platform'],
      ])
    },
  },
  {
    title: 'a person at a provider is the user of that identity, and nobody else of that subject',
    async run(store) {
      await seed(store)
      const corp = { provider: 'corp' }
      await begin(store, 'one', corp)
      expect(await accept(store, 'one', person('s'))).toBe('not_found')
      expect(await accept(store, 'one', person('s', corp))).toBe('decided')
      expect(await verdictOf(store, 'one', { newUserId: 'user_x' }, NOW + 1)).toBe('created')
      expect(await store.findUserByExternalId('s')).toBeUndefined()
      const identity = { ...corp, subject: 's', userId: 'user_x', createdAtMs: NOW + 1, lastUsedAtMs: NOW + 1 }
      expect(await store.listIdentities('user_x')).toEqual([identity])
      await begin(store, 'two', { provider: 'campus' })
      await accept(store, 'two', person('s', { provider: 'campus', mayCreate: false }))
      expect(await verdictOf(store, 'two')).toBe('no_account')
      await begin(store, 'three', corp)
      await accept(store, 'three', person('s', { ...corp, mayCreate: false }))
      expect(await verdictOf(store, 'three', {}, NOW + 2)).toBe('signed_in')
      expect(await store.listIdentities('user_x')).toEqual([{ ...identity, lastUsedAtMs: NOW + 2 }])
    },
  },
  {
    title: 'another browser uses nothing up, and the one that began goes on',
    async run(store) {
      await seed(store)
      await begin(store, 'one')
      await accept(store, 'one', person('4711'))
      const other = await complete(store, 'one', { browserHash: hashOf('other') })
      expect(other).toMatchObject({ verdict: 'other_browser', sessionExpiresAtMs: 0 })
      expect(await store.findUserByExternalId('4711')).toBeUndefined()
      expect(await verdictOf(store, 'one')).toBe('created')
    },
  },
  {
    title: 'a verifier is used once, whatever races, and only the newest one counts',
    async run(store) {
      await seed(store)
      await begin(store, 'one')
      await accept(store, 'one', person('4711'), 'older')
      expect(await accept(store, 'one', person('4711'), 'newer')).toBe('decided')
      expect(await verdictOf(store, 'older')).toBe('unknown')
      const verdicts = await Promise.all(Array.from({ length: 10 }, () => verdictOf(store, 'newer')))
      expect(verdicts.filter((verdict) => verdict !== 'unknown')).toEqual(['created'])
      expect((await auditKinds(store)).filter((kind) => kind === 'session.started')).toHaveLength(3) // two of seed
      expect(await accept(store, 'one', person('4711'))).toBe('decided_otherwise')
    },
  },
  {
    title: 'a verifier is good until 1 ms before its end',
    async run(store) {
      await seed(store)
      for (const [name, at, verdict] of [
        ['late', NOW + MINUTE, 'expired'],
        ['in time', NOW + MINUTE - 1, 'created'],
      ] as const) {
        await begin(store, name)
        await accept(store, name, person(name))
        expect(await verdictOf(store, name, {}, at), name).toBe(verdict)
        expect(await verdictOf(store, name), name).toBe('unknown')
      }
    },
  },
  {
    title: 'however many browsers bring one new person at once, one user is made',
    async run(store) {
      await seed(store)
      for (const provider of ['', 'corp']) {
        const names = Array.from({ length: 8 }, (_, i) => `${provider} ${i}`)
        for (const name of names) {
          await begin(store, name, { provider })
          await accept(store, name, person('4711', { provider }))
        }
        const verdicts = await Promise.all(names.map((name) => verdictOf(store, name)))
        expect(verdicts.toSorted()).toEqual(['created', ...Array.from({ length: 7 }, () => 'signed_in')])
      }
      const { rows } = await store.listUsers({ after: undefined, limit: 99 })
      expect(rows.filter(({ username }) => username.startsWith('~'))).toHaveLength(2)
    },
  },
  {
    title: 'a disabled and a deleted user stay so, though they were accepted before',
    async run(store) {
      await seed(store)
      for (const provider of ['', 'corp']) {
        const who = person('4711', { provider })
        const name = (what: string) => `${provider} ${what}`
        await begin(store, name('first'), { provider })
        await accept(store, name('first'), who)
        await complete(store, name('first'), { newUserId: `user_of_${provider}` })
        for (const end of ['disabled', 'deleted'] as const) {
          await begin(store, name(end), { provider })
          if (end === 'disabled') expect(await accept(store, name(end), who)).toBe('decided')
          if (end === 'disabled') await store.setUserDisabled(`user_of_${provider}`, true, NOW, byOperator)
          else await store.deleteUser(`user_of_${provider}`, NOW, byOperator)
          if (end === 'disabled') expect(await verdictOf(store, name(end))).toBe('user_disabled')
          await begin(store, name(`${end} again`), { provider })
          expect(await accept(store, name(`${end} again`), who)).toBe('user_disabled')
        }
      }
      const refused = (await auditTrail(store)).filter(({ kind }) => kind === 'sign_in.refused')
      expect(refused.map(({ userId, note }) => [userId, note])).toEqual([
        ['user_of_', 'user_disabled external_id 4711'],
        ['user_of_corp', 'user_disabled corp 4711'],
      ])
    },
  },
  {
    title: 'an identity is linked to the user who began that, unless it is another user’s',
    async run(store) {
      await seed(store)
      const linking = { provider: 'corp', linkTo: 'user_ann', appid: '', redirectUri: '' }
      const corp = { provider: 'corp' }
      const previousSessionHash = sessionOf('user_ann')
      await begin(store, 'one', linking)
      await accept(store, 'one', person('s', corp))
      expect(await complete(store, 'one', { previousSessionHash })).toMatchObject({
        verdict: 'linked',
        sessionExpiresAtMs: 0,
      })
      expect(await store.findSession(previousSessionHash)).toBeDefined()
      expect(await store.listIdentities('user_ann')).toMatchObject([{ subject: 's' }])
      await begin(store, 'again', linking)
      await accept(store, 'again', person('s', corp))
      expect(await verdictOf(store, 'again', { previousSessionHash })).toBe('linked')
      await begin(store, 'bob', { ...linking, linkTo: 'user_bob' })
      await accept(store, 'bob', person('s', corp))
      expect(await verdictOf(store, 'bob', { previousSessionHash: sessionOf('user_bob') })).toBe('identity_taken')
      expect(await store.listIdentities('user_bob')).toEqual([])
      expect((await auditKinds(store)).filter((kind) => kind === 'identity.linked')).toHaveLength(1)
      expect(await store.findUser('ann')).toEqual(userRow('ann'))
    },
  },
  {
    title:
      'an identity is linked in the session in which that began, and nobody else’s is linked for whoever left it open',
    async run(store) {
      await seed(store)
      const linking = { provider: 'corp', linkTo: 'user_ann', appid: '', redirectUri: '' }
      for (const previousSessionHash of [undefined, hashOf('ended'), sessionOf('user_bob')]) {
        await begin(store, 'one', linking)
        await accept(store, 'one', person('s', { provider: 'corp' }))
        expect(await verdictOf(store, 'one', { previousSessionHash })).toBe('expired')
        await store.removeSignIns({ expiredBeforeMs: NOW + DAY, limit: 9 })
      }
      expect(await store.listIdentities('user_ann')).toEqual([])
    },
  },
  {
    title: 'a provider ends what began with its session, and what its user began without one, but no grant',
    async run(store) {
      await seed(store)
      await store.linkIdentity({ provider: 'corp', subject: 's' }, 'user_ann', NOW, byOperator)
      await store.linkIdentity({ provider: 'campus', subject: 's' }, 'user_bob', NOW, byOperator)
      const { accessTokenHash } = await grant(store)
      const signedIn = async (name: string, provider: string, sid: string) => {
        await begin(store, name, { provider })
        await accept(store, name, person('s', { provider, sid }))
        expect(await verdictOf(store, name, { sessionHash: hashOf(name) })).toBe('signed_in')
      }
      const open = async () => {
        const names = ['one', 'two', 'without', 'elsewhere']
        const found = await Promise.all(names.map((name) => store.findSession(hashOf(name))))
        return names.filter((_, at) => found[at] !== undefined)
      }
      const end = (subject: string, sid: string, provider = 'corp') =>
        store.endProviderSessions({ provider, subject, sid }, NOW, byPlatform)
      await signedIn('one', 'corp', 'sid 1')
      await signedIn('two', 'corp', 'sid 2')
      await signedIn('without', 'corp', '')
      await signedIn('elsewhere', 'campus', 'sid 1')
      expect(await store.listSessions('user_bob')).toMatchObject([{ way: 'provider', provider: 'campus' }, {}])
      for (const provider of ['', 'other']) expect(await end('s', 'sid 1', provider)).toBe(0)
      expect(await end('', 'sid 1')).toBe(1)
      expect(await open()).toEqual(['two', 'without', 'elsewhere'])
      expect(await end('s', 'sid 3')).toBe(1)
      expect(await open()).toEqual(['two', 'elsewhere'])
      expect(await end('s', '')).toBe(1)
      expect(await open()).toEqual(['elsewhere'])
      expect(await end('', '')).toBe(0)
      expect(await store.findSession(sessionOf('user_ann'))).toBeDefined()
      expect(await isGood(store, accessTokenHash)).toBe(true)
      const events = (await auditTrail(store)).filter(({ kind }) => kind === 'session.ended')
      for (const event of events) expect(event).toMatchObject({ userId: 'user_ann', note: 'signed out at corp' })
      expect(events).toHaveLength(3)
    },
  },
  {
    title: 'a provider ends what it has accepted of a session, or of a user, before the browser comes back',
    async run(store) {
      await seed(store)
      const end = (subject: string, sid: string) =>
        store.endProviderSessions({ provider: 'corp', subject, sid }, NOW, byPlatform)
      for (const [name, provider, sid, subject] of [
        ['of the session', 'corp', 'sid 1', 's'],
        ['of another', 'corp', 'sid 2', 's'],
        ['of none', 'corp', '', 's'],
        ['of another user', 'corp', '', 't'],
        ['elsewhere', 'campus', 'sid 1', 's'],
      ] as const) {
        await begin(store, name, { provider })
        await accept(store, name, person(subject, { provider, sid }))
      }
      await end('s', 'sid 1')
      for (const name of ['of the session', 'of none']) expect(await verdictOf(store, name), name).toBe('unknown')
      for (const name of ['of another user', 'elsewhere']) expect(await verdictOf(store, name), name).toBe('created')
      await end('s', '')
      expect(await verdictOf(store, 'of another')).toBe('unknown')
      expect(await store.findSession(sessionOf('user_ann'))).toBeDefined()
    },
  },
  {
    title:
      'to end the sessions of a user ends what was accepted of them before the browser comes back, and of nobody else',
    async run(store) {
      await seed(store)
      await store.updateUser('user_ann', { externalId: '4711' }, NOW, byOperator)
      await store.linkIdentity({ provider: 'corp', subject: 's' }, 'user_ann', NOW, byOperator)
      const people = [
        person('4711'),
        person('s', { provider: 'corp' }),
        person('4712'),
        person('4711', { provider: 'corp' }),
      ]
      const accepted = async (round: string) => {
        const names = people.map((_, at) => `${round} ${at}`)
        for (const [at, who] of people.entries()) {
          await begin(store, names[at] ?? '', { provider: who.provider })
          await accept(store, names[at] ?? '', who)
        }
        return () => Promise.all(names.map((name) => verdictOf(store, name)))
      }
      const one = await accepted('one')
      await store.endSessions({ userId: 'user_ann', only: sessionOf('user_ann') }, NOW, byUser)
      expect(await one()).toEqual(['signed_in', 'signed_in', 'created', 'created'])
      for (const which of [{}, { allBut: sessionOf('user_ann') }]) {
        const all = await accepted(Object.keys(which).join())
        await store.endSessions({ userId: 'user_ann', ...which }, NOW, byUser)
        expect(await all()).toEqual(['unknown', 'unknown', 'signed_in', 'signed_in'])
      }
    },
  },
  {
    title: 'a rejection is told once to the browser that began, and an acceptance after it is audited',
    async run(store) {
      await seed(store)
      await begin(store, 'one')
      const reject = (verifier: string) =>
        store.rejectSignIn(
          hashOf('challenge one'),
          { provider: '', isCancelled: true },
          { verifierHash: hashOf(`verifier ${verifier}`), verifierExpiresAtMs: NOW + MINUTE },
          NOW,
          byPlatform,
        )
      expect(await reject('older')).toMatchObject({ verdict: 'decided' })
      expect(await reject('one')).toMatchObject({ verdict: 'decided' })
      expect(await accept(store, 'one', person('4711'))).toBe('decided_otherwise')
      expect(await complete(store, 'one')).toMatchObject({ verdict: 'rejected', signIn: { isCancelled: true } })
      expect(await verdictOf(store, 'one')).toBe('unknown')
      const events = (await auditTrail(store)).filter(({ kind }) => kind.startsWith('sign_in'))
      expect(events.map(({ kind, appid, note }) => [kind, appid, note])).toEqual([
        ['sign_in.rejected', 'app1', 'cancelled'],
        ['sign_in.rejected', 'app1', 'cancelled'],
        ['sign_in.contradicted', 'app1', 'external_id 4711'],
      ])
      for (const { actor } of events) expect(actor).toBe('sign_in')
    },
  },
  {
    title: 'the sessions of somebody from elsewhere are bounded as all are',
    async run(store) {
      await seed(store)
      await startSession(store, 'older')
      await store.updateUser('user_ann', { externalId: '4711' }, NOW, byOperator)
      await begin(store, 'one')
      await accept(store, 'one', person('4711'), 'one', NOW + 1)
      await complete(store, 'one', { maxLive: 1, sessionHash: hashOf('newer') }, NOW + 1)
      expect(await store.findSession(hashOf('older'))).toBeUndefined()
      expect(await store.findSession(hashOf('newer'))).toMatchObject({ userId: 'user_ann' })
    },
  },
  {
    title: 'one source has 1,000 sign-ins in progress at most, and what has expired does not count',
    async run(store) {
      await seed(store)
      const source = '198.51.100.1'
      for (let at = 0; at < 1_000; at += 100) {
        await Promise.all(Array.from({ length: 100 }, (_, i) => begin(store, `${at + i}`, { source })))
      }
      expect(await begin(store, 'one more', { source })).toBe('too_many')
      expect(await begin(store, 'elsewhere')).toBe('begun')
      const later = signIn('later', { source, expiresAtMs: NOW + DAY })
      expect(await store.beginSignIn(later, NOW + 30 * MINUTE, byUser)).toBe('begun')
      expect(await store.removeSignIns({ expiredBeforeMs: NOW + DAY, limit: 700 })).toBe(700)
      expect(await store.removeSignIns({ expiredBeforeMs: NOW + DAY, limit: 700 })).toBe(301)
    },
  },
]
