import { type ChildProcess, execFileSync, fork } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterEach, beforeAll, describe, expect, test } from 'vitest'
import { openSqliteTokenStore } from '../../services/token/store/sqlite/sqlite-token-store.js'
import type { RedemptionResult } from '../../services/token/store/token-store.js'
import { temporaryDirectory } from './temporary-directory.js'
import { byApp, byUser, grant, isGood, issue, mint, NOW, redemption, seed } from './token-store-verbs.js'

const BUILD = fileURLToPath(new URL('../../bin/build-if-needed.js', import.meta.url))
const PROGRAM = fileURLToPath(new URL('./sqlite-process.js', import.meta.url))
const children: ChildProcess[] = []

interface Reply {
  readonly id: number
  readonly result?: unknown
  readonly error?: string
}

/** Another process on the file; `call` runs one method of its store. */
async function startProcess(file: string) {
  const child = fork(PROGRAM, [file], { serialization: 'advanced' })
  children.push(child)
  const waiting = new Map<number, (reply: Reply) => void>()
  let lastId = 0
  const opened = new Promise<Reply>((resolve) => waiting.set(0, resolve))
  child.on('message', (reply: Reply) => waiting.get(reply.id)?.(reply))
  await Promise.race([opened, once(child, 'exit').then(() => Promise.reject(new Error('it did not open the file')))])
  return {
    child,
    async call(method: string, ...args: unknown[]): Promise<unknown> {
      const id = ++lastId
      const replied = new Promise<Reply>((resolve) => waiting.set(id, resolve))
      child.send({ id, method, args })
      const { result, error } = await replied
      if (error !== undefined) throw new Error(error)
      return result
    },
  }
}

beforeAll(() => {
  execFileSync(process.execPath, [BUILD]) // the processes run the compiled program
}, 120_000)
afterEach(() => {
  for (const child of children.splice(0)) child.kill()
})

describe('several processes on one SQLite file', () => {
  test('all may start at once on an empty file: one migrates', async () => {
    const file = join(temporaryDirectory(), 'token.db')
    const processes = await Promise.all([1, 2, 3, 4].map(() => startProcess(file)))
    for (const { call } of processes) expect(await call('findApp', 'nothing')).toBeUndefined()
  }, 60_000)

  test('a code is redeemed once among them', async () => {
    const file = join(temporaryDirectory(), 'token.db')
    const store = openSqliteTokenStore({ file })
    await seed(store)
    const processes = await Promise.all([1, 2, 3].map(() => startProcess(file)))
    for (let round = 0; round < 5; round++) {
      await issue(store, `code ${round}`)
      const results = await Promise.all(
        Array.from({ length: 60 }, (_, i) => {
          const request = redemption(`code ${round}`)
          const other = processes[i % processes.length]
          return other?.call('redeemCode', request, NOW, byApp) as Promise<RedemptionResult>
        }),
      )
      expect(results.filter(({ kind }) => kind === 'redeemed')).toHaveLength(1)
    }
    await store.close()
  }, 60_000)

  test('a revocation by one holds for the next read and refresh of another', async () => {
    const file = join(temporaryDirectory(), 'token.db')
    const store = openSqliteTokenStore({ file })
    await seed(store)
    const commandLine = await startProcess(file)
    const { grantId, accessTokenHash, refreshTokenHash } = await grant(store)
    expect(await isGood(store, accessTokenHash)).toBe(true) // it may remember this
    expect(await commandLine.call('revokeGrant', grantId, NOW, byUser)).toBe('revoked')
    expect(await isGood(store, accessTokenHash)).toBe(false)
    expect((await mint(store, refreshTokenHash)).result).toBe('refused')
    await store.close()
  }, 60_000)

  test('what one acknowledged before it was killed is kept, and the others go on', async () => {
    const file = join(temporaryDirectory(), 'token.db')
    const store = openSqliteTokenStore({ file })
    await seed(store)
    const victim = await startProcess(file)
    await issue(store, 'code')
    const request = redemption('code')
    expect(await victim.call('redeemCode', request, NOW, byApp)).toMatchObject({ kind: 'redeemed' })
    victim.child.kill('SIGKILL')
    await once(victim.child, 'exit')
    expect(await isGood(store, request.accessTokenHash)).toBe(true)
    expect((await mint(store, request.refreshTokenHash)).result).toBe('minted')
    await store.close()
  }, 60_000)
})
