// A clock that was wrong once: what it issued, and what a janitor does by it, on both databases.
import { describe, expect, onTestFinished, test } from 'vitest'
import { Clock } from '../harness/clock.js'
import { expectError } from '../harness/envelope.js'
import { type Verbs, withToken } from '../harness/verbs.js'
import { openService } from '../harness.js'
import { createDatabase } from '../postgres/shared-cluster.js'
import { temporaryDirectory } from './temporary-directory.js'

/** A service that can be stopped and started again, by the same clock, on the same databases. */
async function newPlace(engine: 'SQLite' | 'PostgreSQL') {
  const url = engine === 'PostgreSQL' ? await createDatabase() : ''
  const env: Record<string, string> = url === '' ? {} : { TOKEN_DATABASE_URL: url, SURVEY_DATABASE_URL: url }
  const place = { dataDir: temporaryDirectory(), clock: new Clock() }
  let last: Verbs | undefined
  onTestFinished(() => last?.backend.close())
  return {
    clock: place.clock,
    async start(): Promise<Verbs> {
      await last?.backend.close()
      last = await openService({ place, env })
      await last.backend.runJanitors()
      return last
    },
  }
}

describe.each(['SQLite', 'PostgreSQL'] as const)('on %s', (engine) => {
  test('what was issued while the clock was 20 days ahead is good for its lifetime from when it is corrected', async () => {
    const { clock, start } = await newPlace(engine)
    let service = await start()
    const old = await service.grantAccess()
    clock.set({ days: 20 })
    service = await start()
    const visitor = await service.signedIn(old.user)
    const access = await service.grantAccess({ app: old.app, user: old.user, visitor })
    const refreshed = withToken(old, await service.refresh(old.app, old.tokens.refresh_token))
    const code = await service.issueCode(old.app, old.user, { visitor })
    const used = await service.issueCode(old.app, old.user, { visitor })
    await service.exchange(old.app, used)

    clock.set({ days: -20 })
    service = await start()
    for (const one of [access, refreshed]) expect((await service.user(one)).code).toBe('OK')
    clock.advance({ minutes: 5, ms: -1 })
    expect((await service.exchange(old.app, code)).code).toBe('OK')
    expectError(await service.exchange(old.app, used), 'invalid_code')
    clock.advance({ days: 3, minutes: -5 })
    service = await start()
    for (const one of [access, refreshed]) expect((await service.user(one)).code).toBe('OK')
    clock.advance({ ms: 1 })
    for (const one of [access, refreshed]) expectError(await service.user(one), 'invalid_token')
    clock.advance({ days: 27, ms: -1 })
    expect((await service.refresh(access.app, access.tokens.refresh_token)).code).toBe('OK')
    clock.advance({ ms: 1 })
    service = await start()
    for (const one of [access, old]) {
      expectError(await service.refresh(one.app, one.tokens.refresh_token), 'invalid_refresh_token')
    }
  })

  test('a start 60 days ahead deletes nothing that was live, and the log and the metrics say that the clean-up waits', async () => {
    const { clock, start } = await newPlace(engine)
    let service = await start()
    const access = await service.grantAccess()
    clock.set({ days: 60 })
    service = await start()
    await service.backend.runJanitors()
    expect(service.backend.log()).toContain('the token database was last cleaned up at 2040-01-01T00:00:00.000Z')
    clock.set({ days: -60 })
    service = await start()
    expect((await service.user(access)).code).toBe('OK')
    expect((await service.refresh(access.app, access.tokens.refresh_token)).code).toBe('OK')
    expect(service.backend.log()).not.toContain('was last cleaned up')
  })

  test('a service that was off for two months cleans up by itself six hours after its start', async () => {
    const { clock, start } = await newPlace(engine)
    let service = await start()
    await service.grantAccess()
    clock.advance({ days: 60 })
    service = await start()
    const left = async () => (await service.admin.listGrants({})).grants.length
    expect(await left()).toBe(1)
    clock.advance({ hours: 6, ms: -1 })
    await service.backend.runJanitors()
    expect(await left()).toBe(1)
    clock.advance({ ms: 1 })
    await service.backend.runJanitors()
    expect(await left()).toBe(0)
  })

  test('a clock a year behind at a start, soon corrected, ends no grant', async () => {
    const { clock, start } = await newPlace(engine)
    let service = await start()
    const access = await service.grantAccess()
    clock.set({ days: -365 })
    service = await start()
    clock.set({ days: 365 })
    service = await start()
    expect((await service.user(access)).code).toBe('OK')
    clock.advance({ days: 30, ms: -1 })
    expect((await service.refresh(access.app, access.tokens.refresh_token)).code).toBe('OK')
  })
})
