// What answer-store.ts promises, one check per promise.
import { setImmediate as nextTurn } from 'node:timers/promises'
import { expect } from 'vitest'
import type { AnswerDraft, AnswerPage } from '../../services/survey/store/answer-store.js'
import type { SurveyStore } from '../../services/survey/store/survey-store.js'
import type { Check } from './conformance.js'
import { byOperator, saidOf } from './token-store-verbs.js'

const NOW = 1_767_225_600_000
const HOUR = 3_600
/** Everything, in one page. */
const ALL: AnswerPage = { afterId: 0, limit: 100_000, maxBytes: 1e9 }

function answer(answerId = 0, endSeconds = 0, text = `answer ${answerId}`): AnswerDraft {
  return { answerId, endSeconds, document: Buffer.from(text) }
}

async function survey(store: SurveyStore, surveyId = 7, owner = 'ann'): Promise<void> {
  const draft = { surveyId, hash: '', title: 't', state: 2, document: Buffer.of() }
  expect((await store.putSurveys(owner, [draft], NOW, byOperator)).kind).toBe('stored')
}

const add = (store: SurveyStore, drafts: readonly AnswerDraft[], surveyId = 7) =>
  store.putAnswers(surveyId, drafts, NOW, byOperator)

async function idsIn(store: SurveyStore, page: Partial<AnswerPage> = {}, surveyId = 7) {
  const found = await store.listAnswers({ surveyId }, { ...ALL, ...page })
  return found && [found.total, ...found.rows.map((row) => row.answerId)]
}

const range = (first: number, last: number) => Array.from({ length: last - first + 1 }, (_, at) => first + at)

export const answerStoreChecks: readonly Check<SurveyStore>[] = [
  {
    title: 'answers count 1, 2, 3 …, each survey by itself, and are found as they were stored',
    async run(store) {
      for (const id of [7, 8]) await survey(store, id)
      const text = '满意 \0 🎉'
      expect(await add(store, [answer(0, 1, text), answer()])).toEqual({
        kind: 'stored',
        answerIds: [1, 2],
        alreadyStored: 0,
      })
      expect(await add(store, [answer()], 8)).toMatchObject({ answerIds: [1] })
      expect(await add(store, [answer()])).toMatchObject({ answerIds: [3] })
      expect(await idsIn(store)).toEqual([3, 1, 2, 3])
      const found = await store.findAnswer({ surveyId: 7, ownerUserId: 'ann' }, 1)
      expect([found?.answerId, Buffer.from(found?.document ?? []).toString()]).toEqual([1, text])
      expect(await store.findAnswer({ surveyId: 7, ownerUserId: 'ann' }, 4)).toBeUndefined()
    },
  },
  {
    title:
      'a survey of somebody else, one that never existed and one that was deleted have no answers to find or to add to',
    async run(store) {
      for (const id of [7, 8]) await survey(store, id)
      await add(store, [answer()])
      await add(store, [answer()], 8)
      await store.deleteSurveys([8], NOW, byOperator)
      for (const [surveyId, ownerUserId] of [
        [7, 'bob'],
        [7, 'Ann'],
        [8, 'ann'],
        [8, ''],
        [9, 'ann'],
      ] as const) {
        expect(await store.listAnswers({ surveyId, ownerUserId }, ALL)).toBeUndefined()
        expect(await store.findAnswer({ surveyId, ownerUserId }, 1)).toBeUndefined()
      }
      for (const surveyId of [8, 9]) {
        expect(await store.listAnswers({ surveyId }, ALL)).toBeUndefined()
        expect(await add(store, [answer()], surveyId)).toEqual({ kind: 'not_found' })
        expect(await store.deleteAnswers(surveyId, undefined, NOW, byOperator)).toEqual({ kind: 'not_found' })
      }
      expect(await store.listAnswers({ surveyId: 7, ownerUserId: 'ann' }, ALL)).toMatchObject({ total: 1 })
    },
  },
  {
    title: 'a survey without answers has an empty list',
    async run(store) {
      await survey(store)
      expect(await idsIn(store)).toEqual([0])
      expect(await idsIn(store, { interval: { since: 0, until: 10 } })).toEqual([0])
      expect(await store.findAnswer({ surveyId: 7, ownerUserId: 'ann' }, 1)).toBeUndefined()
    },
  },
  {
    title:
      'pages of every size hold the same answers in the same order, and end with the one that reaches the byte limit',
    async run(store) {
      await survey(store)
      await add(
        store,
        Array.from({ length: 20 }, () => answer(0, 5, '0123456789')),
      )
      for (const limit of [1, 3, 7, 20, 100]) {
        const ids: number[] = []
        for (let afterId = 0; ; afterId = ids.at(-1) ?? 0) {
          const [total, ...page] = (await idsIn(store, { afterId, limit })) ?? []
          expect(total).toBe(20)
          expect(page.length).toBeLessThanOrEqual(limit)
          if (page.length === 0) break
          ids.push(...page)
        }
        expect(ids).toEqual(range(1, 20))
      }
      for (const interval of [undefined, { since: 0, until: 9 }]) {
        expect(await idsIn(store, { maxBytes: 1, interval })).toEqual([20, 1])
        expect(await idsIn(store, { maxBytes: 30, interval })).toEqual([20, 1, 2, 3])
        expect(await idsIn(store, { maxBytes: 31, interval })).toEqual([20, 1, 2, 3, 4])
      }
    },
  },
  {
    title: 'an id that is given is kept; new ones are above it, and no lower one can be added any more',
    async run(store) {
      await survey(store)
      expect(await add(store, [answer(5), answer(), answer(9), answer()])).toMatchObject({ answerIds: [5, 6, 9, 10] })
      expect(await add(store, [answer(11), answer(7)])).toEqual({ kind: 'passed', answerId: 7 })
      expect(await add(store, [answer(12), answer(12)])).toEqual({ kind: 'passed', answerId: 12 })
      expect(await idsIn(store)).toEqual([4, 5, 6, 9, 10])
      const last = Number.MAX_SAFE_INTEGER
      expect(await add(store, [answer(last)])).toMatchObject({ answerIds: [last] })
      await expect(add(store, [answer()])).rejects.toMatchObject({ name: 'StoreRefused' })
      expect(await idsIn(store)).toEqual([5, 5, 6, 9, 10, last])
    },
  },
  {
    title:
      'an answer that is stored already stays as it is, and a different one with its id is refused with the whole batch',
    async run(store) {
      await survey(store)
      await add(store, [answer(1), answer(2)])
      const again = await add(store, [answer(2), answer(3), answer()])
      expect(again).toEqual({ kind: 'stored', answerIds: [2, 3, 4], alreadyStored: 1 })
      expect(await add(store, [answer(5), answer(1, 0, 'another')])).toEqual({ kind: 'taken', answerId: 1 })
      expect(await add(store, [answer(1), answer(2)])).toMatchObject({ alreadyStored: 2 })
      expect(await idsIn(store)).toEqual([4, 1, 2, 3, 4])
    },
  },
  {
    title: 'an interval holds the answers that ended in it, first second included and last excluded, and their number',
    async run(store) {
      await survey(store)
      const ends = [0, 10 * HOUR - 1, 10 * HOUR, 10 * HOUR + 7, 11 * HOUR, 12 * HOUR + 30, 12 * HOUR + 30, 9 * HOUR]
      for (const end of ends) await add(store, [answer(0, end)])
      for (const since of [0, 1, 10 * HOUR - 1, 10 * HOUR, 10 * HOUR + 7, 10 * HOUR + 8, 12 * HOUR + 30, 13 * HOUR]) {
        for (const until of [since, 10 * HOUR, 10 * HOUR + 7, 12 * HOUR + 30, 12 * HOUR + 31, 10_000 * HOUR]) {
          if (until < since) continue
          const inside = range(1, ends.length).filter(
            (id) => since <= (ends[id - 1] ?? 0) && (ends[id - 1] ?? 0) < until,
          )
          const interval = { since, until }
          expect(await idsIn(store, { interval }), `${since} ${until}`).toEqual([inside.length, ...inside])
          const later = inside.filter((id) => id > 3).slice(0, 2)
          expect(await idsIn(store, { interval, afterId: 3, limit: 2 })).toEqual([inside.length, ...later])
        }
      }
    },
  },
  {
    title: 'an interval of many answers pages by id, whether they came in the order of their times or not',
    async run(store) {
      await survey(store)
      const ends = (id: number) => (id <= 12_000 ? id : (id * 7919) % 12_000)
      for (let first = 1; first <= 24_000; first += 1_000)
        await add(
          store,
          range(first, first + 999).map((id) => answer(id, ends(id), 'a')),
        )
      for (const interval of [
        { since: 1_000, until: 1_003 },
        { since: 3_000, until: 10_500 },
      ]) {
        const inside = range(1, 24_000).filter((id) => interval.since <= ends(id) && ends(id) < interval.until)
        expect(await idsIn(store, { interval })).toEqual([inside.length, ...inside])
        const after = inside.filter((id) => id > 11_000)
        expect(await idsIn(store, { interval, afterId: 11_000, limit: 5 })).toEqual([
          inside.length,
          ...after.slice(0, 5),
        ])
        expect(await idsIn(store, { interval, afterId: 24_000 })).toEqual([inside.length])
      }
    },
  },
  {
    title: 'whoever has seen an id never sees a lower one appear, whatever writers do at the same time',
    async run(store) {
      await survey(store)
      const ids: number[] = []
      let areWriting = true
      const reader = async () => {
        let before: number[] = []
        while (areWriting) {
          await nextTurn()
          const [total = 0, ...seen] = (await idsIn(store)) ?? []
          expect(seen).toEqual(range(1, total))
          expect(seen.slice(0, before.length)).toEqual(before)
          before = seen
        }
      }
      const writer = async () => {
        for (let n = 1; n <= 12; n += 1) {
          const stored = await add(
            store,
            Array.from({ length: n }, () => answer()),
          )
          if (stored.kind === 'stored') ids.push(...stored.answerIds)
        }
      }
      const readers = [reader(), reader()]
      await Promise.all([writer(), writer(), writer()])
      areWriting = false
      await Promise.all(readers)
      expect(ids.sort((a, b) => a - b)).toEqual(range(1, 3 * 78))
    },
  },
  {
    title:
      'answers are deleted by id, all of a call or none; what is left is counted right, and no id is given out again',
    async run(store) {
      await survey(store)
      await add(
        store,
        range(1, 6).map((id) => answer(id, id * HOUR)),
      )
      const remove = (...ids: number[]) => store.deleteAnswers(7, ids, NOW, byOperator)
      expect(await remove(2, 7)).toEqual({ kind: 'not_found', answerId: 7 })
      expect(await idsIn(store)).toEqual([6, 1, 2, 3, 4, 5, 6])
      expect(await remove(6, 2, 2)).toEqual({ kind: 'deleted', deleted: 2, alreadyDeleted: 0 })
      expect(await remove(2, 3)).toEqual({ kind: 'deleted', deleted: 1, alreadyDeleted: 1 })
      expect(await idsIn(store)).toEqual([3, 1, 4, 5])
      expect(await idsIn(store, { interval: { since: 2 * HOUR, until: 6 * HOUR } })).toEqual([2, 4, 5])
      expect(await store.findAnswer({ surveyId: 7, ownerUserId: 'ann' }, 2)).toBeUndefined()
      expect(await add(store, [answer(2)])).toEqual({ kind: 'passed', answerId: 2 })
      expect(await add(store, [answer()])).toMatchObject({ answerIds: [7] })
    },
  },
  {
    title: 'all answers to a survey are gone at once, and new ones count on',
    async run(store) {
      await survey(store)
      await survey(store, 8)
      await add(store, [answer(), answer()])
      await add(store, [answer()], 8)
      const removeAll = () => store.deleteAnswers(7, undefined, NOW, byOperator)
      expect(await removeAll()).toEqual({ kind: 'deleted', deleted: 2, alreadyDeleted: 0 })
      expect(await removeAll()).toEqual({ kind: 'deleted', deleted: 0, alreadyDeleted: 0 })
      expect([await idsIn(store), await idsIn(store, {}, 8)]).toEqual([[0], [1, 1]])
      expect(await store.findAnswer({ surveyId: 7, ownerUserId: 'ann' }, 1)).toBeUndefined()
      expect(await add(store, [answer()])).toMatchObject({ answerIds: [3] })
      expect(await store.deleteAnswers(8, [1], NOW, byOperator)).toMatchObject({ deleted: 1 })
    },
  },
  {
    title: 'a deleted survey takes its answers along: one with its id has none, whoever it belongs to',
    async run(store) {
      await survey(store)
      await add(store, [answer(), answer()])
      await store.deleteSurveys([7], NOW, byOperator)
      expect(await idsIn(store)).toBeUndefined()
      await survey(store, 7, 'bob')
      expect(await idsIn(store)).toEqual([0])
      expect(await add(store, [answer()])).toMatchObject({ answerIds: [1] })
      await survey(store, 7, 'bob')
      expect(await idsIn(store), 'stored again').toEqual([1, 1])
    },
  },
  {
    title: "what is nobody's is removed in portions, and nothing else is",
    async run(store) {
      for (const id of [7, 8]) await survey(store, id)
      await add(
        store,
        range(1, 5).map((id) => answer(id, id * HOUR)),
      )
      await add(store, [answer()], 8)
      expect(await store.removeAnswers({ limit: 4 })).toBe(0)
      await store.deleteSurveys([7], NOW, byOperator)
      await store.deleteAnswers(8, undefined, NOW, byOperator)
      await add(store, [answer()], 8)
      const removed: number[] = []
      for (let rows = 1; rows > 0; removed.push(rows)) rows = await store.removeAnswers({ limit: 4 })
      expect(removed.every((rows) => rows <= 4)).toBe(true)
      expect(
        removed.reduce((sum, rows) => sum + rows),
        '6 answers, of 6 hours, in 2 sets',
      ).toBe(14)
      expect(await idsIn(store, {}, 8)).toEqual([1, 2])
    },
  },
  {
    title: 'what is stored and deleted of answers is audited with their ids, and what changed nothing is not',
    async run(store) {
      await survey(store)
      await add(store, [answer(1), answer(2)])
      await add(store, [answer(1)])
      await add(store, [answer(2), answer(9, 0, 'nine')])
      await add(store, [answer(1, 0, 'x')])
      await store.deleteAnswers(7, [1, 9, 3], NOW, byOperator)
      await store.deleteAnswers(7, [1, 10], NOW, byOperator)
      await store.deleteAnswers(7, undefined, NOW, byOperator)
      await store.deleteAnswers(7, undefined, NOW, byOperator)
      const { rows } = await store.listEvents({ surveyId: 7 }, { limit: 100, after: undefined })
      expect(rows[0]).toEqual({
        ...saidOf(byOperator),
        eventId: expect.any(String),
        atMs: NOW,
        kind: 'answers.deleted',
        surveyId: 7,
        ownerUserId: 'ann',
        appid: '',
        firstAnswerId: 1,
        lastAnswerId: 9,
      })
      expect(
        rows.map(({ kind, firstAnswerId, lastAnswerId }) => `${kind} ${firstAnswerId}-${lastAnswerId}`).sort(),
      ).toEqual([
        'answers.deleted 1-1',
        'answers.deleted 1-9',
        'answers.deleted 9-9',
        'answers.imported 1-2',
        'answers.imported 9-9',
        'survey.created 0-0',
      ])
    },
  },
  {
    title: 'that an app read answers of an owner in an hour is one event, which widens',
    async run(store) {
      const read = {
        appid: 'app1',
        surveyId: 7,
        ownerUserId: 'ann',
        hourMs: NOW,
        firstId: 5,
        lastId: 9,
        requestId: 'one',
      }
      await store.recordAnswersRead(read)
      await store.recordAnswersRead({ ...read, firstId: 7, lastId: 20, requestId: 'two' })
      await store.recordAnswersRead({ ...read, firstId: 2, lastId: 3 })
      await store.recordAnswersRead({ ...read, hourMs: NOW + 3_600_000 })
      await store.recordAnswersRead({ ...read, appid: 'app2' })
      await store.recordAnswersRead({ ...read, ownerUserId: 'ben', firstId: 1, lastId: 99 })
      const { rows } = await store.listEvents({ ownerUserId: 'ann' }, { limit: 9, after: undefined })
      const told = rows.map((row) =>
        [row.atMs - NOW, row.appid, row.firstAnswerId, row.lastAnswerId, row.requestId].join(' '),
      )
      expect(told.sort()).toEqual(['0 app1 2 20 one', '0 app2 5 9 one', '3600000 app1 5 9 one'])
      expect(rows[0]).toMatchObject({ kind: 'answers.read', actor: 'app', actorId: '', actorSource: '', surveyId: 7 })
      expect(rows[0]?.eventId).toMatch(/^[0-9a-f]{36}$/)
    },
  },
  {
    title: 'the key of pseudonyms is the first that was offered, for good',
    async run(store) {
      const offers = await Promise.all([1, 2, 3].map((byte) => store.respondentKey(Buffer.alloc(32, byte))))
      const [key] = offers.map((offer) => Buffer.from(offer).toString('hex'))
      expect(new Set(offers.map((offer) => Buffer.from(offer).toString('hex')))).toEqual(new Set([key]))
      expect(Buffer.from(await store.respondentKey(Buffer.alloc(32, 9))).toString('hex')).toBe(key)
    },
  },
]
