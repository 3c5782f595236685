// What survey-store.ts promises, one check per promise. Every adapter of SurveyStore must pass them all.
import { expect } from 'vitest'
import { type SurveyDraft, type SurveyStore, surveyHash } from '../../services/survey/store/survey-store.js'
import { answerStoreChecks } from './answer-store-conformance.js'
import { type Check, describeConformance } from './conformance.js'
import { allPages, byOperator, saidOf } from './token-store-verbs.js'

const NOW = 1_767_225_600_000
const MAX_ID = Number.MAX_SAFE_INTEGER

function draft(surveyId: number, title = `survey ${surveyId}`): SurveyDraft {
  return { surveyId, hash: '', title, state: 2, document: Buffer.from(`document of ${title}`) }
}

async function put(store: SurveyStore, owner: string, ...drafts: SurveyDraft[]): Promise<number[]> {
  const result = await store.putSurveys(owner, drafts, NOW, byOperator)
  if (result.kind !== 'stored') throw new Error(`nothing was stored: ${result.kind}`)
  return result.rows.map((row) => row.surveyId)
}

export const surveyStoreChecks: readonly Check<SurveyStore>[] = [
  {
    title: 'a survey is found as it was stored, with the hash that follows from its id',
    async run(store) {
      const document = Buffer.from([0, 1, 254, 255])
      const stored = await store.putSurveys('ann', [{ ...draft(7, '满意度 <调查>'), document }], NOW, byOperator)
      const summary = { surveyId: 7, hash: surveyHash(7), title: '满意度 <调查>', state: 2 }
      expect(stored).toEqual({ kind: 'stored', rows: [summary] })
      const found = await store.findSurvey(7)
      expect(found).toMatchObject({ surveyId: 7, ownerUserId: 'ann', hash: surveyHash(7) })
      expect(Buffer.from(found?.document ?? [])).toEqual(document)
      expect(await store.findSurvey(8)).toBeUndefined()
    },
  },
  {
    title: 'reads and lists return a survey as last stored, even after they returned an earlier version',
    async run(store) {
      const title = async () => [
        (await store.findSurvey(7))?.document.toString(),
        (await store.listSurveys('ann', { offset: 0, limit: 5 })).rows.map((row) => row.title).join(),
      ]
      expect(await title()).toEqual([undefined, ''])
      await put(store, 'ann', draft(7, 'first'))
      expect(await title()).toEqual(['document of first', 'first'])
      await put(store, 'ann', draft(7, 'second'))
      expect(await title()).toEqual(['document of second', 'second'])
      await put(store, 'ann', draft(8, 'third'))
      expect(await title()).toEqual(['document of second', 'second,third'])
    },
  },
  {
    title: 'each of many concurrent reads gets its own result',
    async run(store) {
      const ids = Array.from({ length: 60 }, (_, at) => at + 1)
      await Promise.all(ids.map((id) => put(store, `owner ${id % 3}`, draft(id))))
      for (const round of ['first', 'second']) {
        const found = await Promise.all([...ids, 99].map((id) => store.findSurvey(id)))
        const texts = found.map((row) => row?.document.toString())
        expect(texts, round).toEqual([...ids.map((id) => `document of survey ${id}`), undefined])
        const pages = await Promise.all(
          ids.map((id) => store.listSurveys(`owner ${id % 4}`, { offset: id % 25, limit: 2 })),
        )
        const titles = pages.map(({ total, rows }) => [total, ...rows.map(({ title }) => title)])
        const expected = ids.map((id) => {
          const owned = ids.filter((one) => one % 3 === id % 4)
          const page = owned.slice(id % 25, (id % 25) + 2)
          return [owned.length, ...page.map((one) => `survey ${one}`)]
        })
        expect(titles, round).toEqual(expected)
      }
    },
  },
  {
    title: 'a hash that is given is kept',
    async run(store) {
      await put(store, 'ann', { ...draft(7), hash: 'beef' })
      expect(await store.findSurvey(7)).toMatchObject({ hash: 'beef' })
      expect((await store.listSurveys('ann', { offset: 0, limit: 1 })).rows).toMatchObject([{ hash: 'beef' }])
    },
  },
  {
    title: 'new ids ascend in the order of the drafts, above every id stored so far',
    async run(store) {
      const [first = 0, second = 0] = await put(store, 'ann', draft(0, 'a'), draft(0, 'b'))
      expect(first).toBeGreaterThan(0)
      expect(second).toBeGreaterThan(first)
      const mixed = await put(store, 'bob', draft(0, 'c'), draft(1000), draft(0, 'd'))
      expect(mixed[1]).toBe(1000)
      expect(mixed[2]).toBeGreaterThan(mixed[0] ?? 0)
      const [next = 0] = await put(store, 'ann', draft(0, 'e'))
      expect(next).toBeGreaterThan(Math.max(...mixed))
      expect(await put(store, 'ann', draft(0, 'f'), draft(next + 1)), 'given behind').toEqual([next + 2, next + 1])
      expect((await store.findSurvey(second))?.document.toString()).toContain('document of b')
    },
  },
  {
    title: 'ids given out at the same time differ',
    async run(store) {
      const ids = await Promise.all(Array.from({ length: 20 }, (_, i) => put(store, 'ann', draft(0, `s${i}`))))
      expect(new Set(ids.flat()).size).toBe(20)
    },
  },
  {
    title: 'ids may be up to 2^53-1; new ids stay below 2^52, whatever is stored above',
    async run(store) {
      expect(await put(store, 'ann', draft(MAX_ID))).toEqual([MAX_ID])
      expect(await store.findSurvey(MAX_ID)).toMatchObject({ surveyId: MAX_ID })
      expect(await put(store, 'ann', draft(0), draft(2 ** 52), draft(0))).toEqual([1, 2 ** 52, 2])
      expect(await put(store, 'ann', draft(2 ** 52 - 2), draft(0))).toEqual([2 ** 52 - 2, 2 ** 52 - 1])
      await expect(store.putSurveys('ann', [draft(0)], NOW, byOperator)).rejects.toThrow('no survey id is left')
    },
  },
  {
    title: 'a survey stored again is replaced, including its hash',
    async run(store) {
      await put(store, 'ann', { ...draft(7, 'old'), hash: 'abcd' })
      const before = await store.findSurvey(7)
      await put(store, 'ann', { ...draft(7, 'new'), state: 3 })
      const after = await store.findSurvey(7)
      expect(after?.document.toString()).toContain('document of new')
      expect([before?.hash, after?.hash]).toEqual(['abcd', surveyHash(7)])
      const list = await store.listSurveys('ann', { offset: 0, limit: 10 })
      expect(list).toMatchObject({ total: 1, rows: [{ hash: surveyHash(7), title: 'new', state: 3 }] })
    },
  },
  {
    title: 'if an id belongs to another owner, the answer names it and nothing of the batch is stored',
    async run(store) {
      await put(store, 'ann', draft(7, 'of ann'))
      const result = await store.putSurveys('bob', [draft(6), draft(7, 'of bob'), draft(0)], NOW, byOperator)
      expect(result).toEqual({ kind: 'id_taken', surveyId: 7 })
      expect(await store.findSurvey(6)).toBeUndefined()
      expect((await store.findSurvey(7))?.document.toString()).toContain('of ann')
      expect((await store.listSurveys('bob', { offset: 0, limit: 10 })).total).toBe(0)
    },
  },
  {
    title: 'a deleted survey is in no answer from then on, and other surveys stay as they were',
    async run(store) {
      await put(store, 'ann', draft(7), draft(8), draft(9))
      await put(store, 'bob', draft(10))
      const [seven, nine] = [await store.findSurvey(7), await store.findSurvey(9)]
      expect(await store.findSurvey(8)).toBeDefined()
      const ofAnn = async () => {
        const { total, rows } = await store.listSurveys('ann', { offset: 0, limit: 9 })
        return [total, ...rows.map((row) => row.surveyId)]
      }
      const exported = async (owner: string | undefined) =>
        (await store.exportSurveys(owner, { afterId: 0, limit: 9, maxBytes: 1000 })).map((row) => row.surveyId)
      expect(await ofAnn()).toEqual([3, 7, 8, 9])
      for (const alreadyDeleted of [0, 2]) {
        expect(await store.deleteSurveys([8, 10, 8], NOW, byOperator)).toEqual({ kind: 'deleted', alreadyDeleted })
        expect([await store.findSurvey(8), await store.findSurvey(10)]).toEqual([undefined, undefined])
        expect(await ofAnn()).toEqual([2, 7, 9])
        expect([await exported(undefined), await exported('ann'), await exported('bob')]).toEqual([[7, 9], [7, 9], []])
        expect((await store.listSurveys('bob', { offset: 0, limit: 9 })).total).toBe(0)
        expect([await store.findSurvey(7), await store.findSurvey(9)]).toEqual([seven, nine])
      }
    },
  },
  {
    title: 'if no survey ever had an id, the answer names it and none of the batch is deleted',
    async run(store) {
      await put(store, 'ann', draft(7), draft(8))
      expect(await store.deleteSurveys([7, 9, 8, 10], NOW, byOperator)).toEqual({ kind: 'not_found', surveyId: 9 })
      expect((await store.listSurveys('ann', { offset: 0, limit: 9 })).total).toBe(2)
    },
  },
  {
    title: 'the id of a deleted survey is not given out as new, but anyone may reuse it',
    async run(store) {
      const [id = 0] = await put(store, 'ann', draft(0, 'secret'))
      await store.deleteSurveys([id], NOW, byOperator)
      expect(await put(store, 'ann', draft(0))).toEqual([id + 1])
      expect(await put(store, 'bob', draft(id, 'of bob'))).toEqual([id])
      const after = await store.findSurvey(id)
      expect(after).toMatchObject({ ownerUserId: 'bob', hash: surveyHash(id) })
      expect(after?.document.toString()).toBe('document of of bob')
      const listed = async (owner: string) =>
        (await store.listSurveys(owner, { offset: 0, limit: 9 })).rows.map((row) => row.surveyId)
      expect([await listed('ann'), await listed('bob')]).toEqual([[id + 1], [id]])
    },
  },
  {
    title: 'a list holds surveys of one owner, ascends by id, and counts all that the owner has',
    async run(store) {
      await put(store, 'ann', draft(30), draft(10), draft(20))
      await put(store, 'bob', draft(15))
      const list = async (offset: number, limit: number) => {
        const { total, rows } = await store.listSurveys('ann', { offset, limit })
        return [total, ...rows.map((row) => row.surveyId)]
      }
      expect(await list(0, 2)).toEqual([3, 10, 20])
      expect(await list(2, 2)).toEqual([3, 30])
      expect(await list(4, 2)).toEqual([3])
      expect(await list(0, 1)).toEqual([3, 10])
      expect(await list(1, 11)).toEqual([3, 20, 30])
      expect(await list(11, 1)).toEqual([3])
      expect(await list(Number.MAX_SAFE_INTEGER, 100)).toEqual([3])
      expect((await store.listSurveys('Ann', { offset: 0, limit: 9 })).total).toBe(0)
    },
  },
  {
    title: 'exports hold documents, ascend by id, and continue above the last id',
    async run(store) {
      await put(store, 'ann', draft(30), draft(10))
      await put(store, 'bob', draft(20))
      const ids = async (owner: string | undefined, afterId: number, limit: number) =>
        (await store.exportSurveys(owner, { afterId, limit, maxBytes: 1000 })).map((row) => row.surveyId)
      expect(await ids(undefined, 0, 2)).toEqual([10, 20])
      expect(await ids(undefined, 20, 2)).toEqual([30])
      expect(await ids('ann', 0, 10)).toEqual([10, 30])
      expect(await ids('ann', 30, 10)).toEqual([])
      const [row] = await store.exportSurveys('bob', { afterId: 0, limit: 1, maxBytes: 1000 })
      expect(row).toMatchObject({ ownerUserId: 'bob' })
      expect(Buffer.from(row?.document ?? []).toString()).toBe('document of survey 20')
    },
  },
  {
    title: 'summaries are of the surveys that are exported: ascending by id, and continued above the last id',
    async run(store) {
      await put(store, 'ann', { ...draft(30, 'c'), state: 2 }, draft(10, 'a'), draft(40))
      await put(store, 'bob', draft(20, 'b'))
      await store.deleteSurveys([40], NOW, byOperator)
      const a = { surveyId: 10, ownerUserId: 'ann', hash: surveyHash(10), title: 'a', state: draft(10).state }
      const b = { ...a, surveyId: 20, ownerUserId: 'bob', hash: surveyHash(20), title: 'b' }
      const c = { ...a, surveyId: 30, hash: surveyHash(30), title: 'c', state: 2 }
      expect(await store.exportSummaries(undefined, { afterId: 0, limit: 9 })).toEqual([a, b, c])
      expect(await store.exportSummaries(undefined, { afterId: 10, limit: 1 })).toEqual([b])
      expect(await store.exportSummaries('ann', { afterId: 0, limit: 9 })).toEqual([a, c])
      expect(await store.exportSummaries('ann', { afterId: 10, limit: 1 })).toEqual([c])
      expect(await store.exportSummaries('ann', { afterId: 30, limit: 9 })).toEqual([])
    },
  },
  {
    title: 'an export ends with the document that reaches its byte limit, even if that is the first',
    async run(store) {
      const document = Buffer.alloc(10)
      await put(store, 'ann', { ...draft(1), document }, { ...draft(3), document }, { ...draft(4), document })
      await put(store, 'bob', { ...draft(2), document: Buffer.alloc(30) })
      const ids = async (owner: string | undefined, maxBytes: number, afterId = 0) =>
        (await store.exportSurveys(owner, { afterId, limit: 10, maxBytes })).map((row) => row.surveyId)
      expect(await ids(undefined, 39)).toEqual([1, 2])
      expect(await ids(undefined, 40)).toEqual([1, 2])
      expect(await ids(undefined, 41)).toEqual([1, 2, 3])
      expect(await ids(undefined, 1, 1)).toEqual([2])
      expect(await ids('ann', 20)).toEqual([1, 3])
      expect(await ids('ann', 21)).toEqual([1, 3, 4])
    },
  },
  {
    title: 'every survey stored or deleted has its own audit event, and refused writes have none',
    async run(store) {
      const cause = { ...byOperator, actor: 'survey_writer' } as const
      await store.putSurveys('ann', [draft(7), draft(0)], NOW, cause)
      await store.putSurveys('ann', [draft(9), draft(7)], NOW + 1, byOperator)
      await store.putSurveys('bob', [draft(6), draft(7)], NOW + 2, byOperator)
      await store.deleteSurveys([7, 99], NOW + 3, byOperator)
      await store.deleteSurveys([9, 7], NOW + 4, cause)
      await store.deleteSurveys([8, 7], NOW + 5, byOperator)
      await store.putSurveys('bob', [draft(7)], NOW + 6, byOperator)
      const { rows, next } = await store.listEvents({}, { limit: 100, after: undefined })
      expect(next).toBeUndefined()
      expect(rows[0]).toEqual({
        ...saidOf(byOperator),
        eventId: expect.stringMatching(/^[0-9a-f]{36}$/),
        atMs: NOW + 6,
        kind: 'survey.created',
        surveyId: 7,
        ownerUserId: 'bob',
        appid: '',
        firstAnswerId: 0,
        lastAnswerId: 0,
      })
      const told = rows.map((row) =>
        [row.atMs - NOW, row.kind.slice(7), row.surveyId, row.ownerUserId, row.actor].join(' '),
      )
      expect(told.sort()).toEqual([
        '0 created 7 ann survey_writer',
        '0 created 8 ann survey_writer',
        '1 created 9 ann operator',
        '1 replaced 7 ann operator',
        '4 deleted 7 ann survey_writer',
        '4 deleted 9 ann survey_writer',
        '5 deleted 8 ann operator',
        '6 created 7 bob operator',
      ])
      expect(new Set(rows.map((row) => row.eventId)).size).toBe(rows.length)
    },
  },
  {
    title: 'events are listed newest first, can be filtered by survey and owner, and page without loss',
    async run(store) {
      for (const at of [0, 0, 1, 2]) await store.putSurveys('ann', [draft(7), draft(8)], NOW + at, byOperator)
      await store.putSurveys('bob', [draft(9)], NOW + 3, byOperator)
      const list = async (filter: Parameters<SurveyStore['listEvents']>[0], limit: number) => {
        const rows = await allPages((page) => store.listEvents(filter, page), limit)
        expect(rows.map((row) => row.eventId)).toEqual(
          rows
            .map((row) => row.eventId)
            .sort()
            .reverse(),
        )
        return rows.map((row) => `${row.atMs - NOW} ${row.surveyId}`)
      }
      const all = await list({}, 100)
      expect(all).toEqual(['3 9', '2 8', '2 7', '1 8', '1 7', '0 8', '0 7', '0 8', '0 7'])
      for (const limit of [1, 2, 3, 9]) expect(await list({}, limit)).toEqual(all)
      expect(await list({ surveyId: 8 }, 3)).toEqual(['2 8', '1 8', '0 8', '0 8'])
      expect(await list({ ownerUserId: 'ann' }, 3)).toEqual(all.slice(1))
      expect(await list({ ownerUserId: 'bob' }, 3)).toEqual(['3 9'])
      expect(await list({ ownerUserId: 'ann', surveyId: 7 }, 3)).toEqual(['2 7', '1 7', '0 7', '0 7'])
      expect(await list({ ownerUserId: 'bob', surveyId: 7 }, 3)).toEqual([])
      expect(await list({ ownerUserId: 'Ann' }, 3)).toEqual([])
      for (const after of ['', '7', 'x'.repeat(36), '~'])
        await expect(store.listEvents({}, { limit: 1, after })).rejects.toMatchObject({
          name: 'StoreRefused',
        })
    },
  },
  {
    title: 'events before their bound are removed, at most the limit at a time, and those at it stay',
    async run(store) {
      for (const at of [0, 1, 2, 3, 4]) await store.putSurveys('ann', [draft(7)], NOW + at, byOperator)
      const left = async () =>
        (await store.listEvents({}, { limit: 9, after: undefined })).rows.map((row) => row.atMs - NOW)
      const remove = () => store.removeEvents({ beforeMs: NOW + 3, limit: 2 })
      expect([await remove(), await left()]).toEqual([2, [4, 3, 2]])
      expect([await remove(), await left()]).toEqual([1, [4, 3]])
      expect([await remove(), await left()]).toEqual([0, [4, 3]])
      expect(await store.findSurvey(7)).toBeDefined()
    },
  },
  ...answerStoreChecks,
  {
    title: 'ping fulfils while the database answers, and finds no flaw',
    run: async (store) => expect(await store.ping()).toEqual([]),
  },
]

/** Checks a store that caches what it read: small surveys are the same object again, of two large ones the first is evicted. */
export async function expectBoundedSurveys(store: SurveyStore): Promise<void> {
  for (const [bytes, areKept] of [
    [1_000, true],
    [4_000_000, false], // 80 MB each with everything derived from them
  ] as const) {
    const document = Buffer.alloc(bytes)
    await put(store, 'ann', { ...draft(1), document }, { ...draft(2), document })
    const first = await store.findSurvey(1)
    expect(await store.findSurvey(1)).toBe(first)
    await store.findSurvey(2)
    expect((await store.findSurvey(1)) === first).toBe(areKept)
  }
}

/** `open` gives an empty store each time; it is closed after each check. */
export function describeSurveyStore(name: string, open: () => Promise<SurveyStore>): void {
  describeConformance(`${name} as a survey store`, surveyStoreChecks, open)
}
