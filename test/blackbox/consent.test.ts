import { randomBytes } from 'node:crypto'
import { Code, ConnectError } from '@connectrpc/connect'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { newFormId, signForm } from '../../gateway/pages/csrf.js'
import { ErrorInfoSchema } from '../../gen/google/rpc/error_details_pb.js'
import { Permission } from '../../gen/surveyauth/v1/token_service_pb.js'
import { expectError } from '../harness/envelope.js'
import { smallSurvey } from '../harness/sample-surveys.js'
import { type Access, type TestApp, type TestUser, tokensOf, type Verbs } from '../harness/verbs.js'
import { decisionForm } from '../harness/visitor.js'
import { openService, startService } from '../harness.js'

/** Of all tests: each makes its own apps and users. */
let service: Verbs
beforeAll(async () => {
  service = await openService()
})
afterAll(() => service.backend.close())

const READ_ANSWERS = {
  en: 'Read the answers people gave to your surveys, also future ones. They can contain personal data of others; you answer for passing them on.',
  zh: '读取他人对您问卷的回答，包括以后的回答。 其中可能含有他人的个人信息，由您决定是否提供。',
}
const CANNOT = 'see the answers people gave'

/** What a service that is about to read answers is told: the reason, or nothing if it may. */
async function refusalOf({ app: { appid }, tokens }: Access, changed: object = {}, from = service): Promise<string> {
  const presented = { appid, accessToken: tokens.access_token, permission: Permission.READ_ANSWERS, ...changed }
  try {
    await from.backend.token.verifyAccessToken(presented)
    return ''
  } catch (error) {
    return ConnectError.from(error).findDetails(ErrorInfoSchema)[0]?.reason ?? 'no reason'
  }
}

function letAskForAnswers({ appid }: TestApp, readsAnswers = true): Promise<unknown> {
  return service.admin.updateApp({ appid, readsAnswers })
}

/** The grants of an app, oldest first, as operators see them. */
async function grantsOf({ appid }: TestApp) {
  const { grants } = await service.admin.listGrants({ appid })
  return grants.reverse()
}

/** A form that is confirmed after `meanwhile`, and the grant of its code. */
async function confirmedAfter(app: TestApp, user: TestUser, meanwhile: () => Promise<unknown>): Promise<Access> {
  const visitor = service.visitor()
  const page = await service.authorizationPage(visitor, app, user)
  await meanwhile()
  const reply = await visitor.decide(page, 'confirm')
  const code = new URL(reply.headers.get('location') ?? '').searchParams.get('code') ?? ''
  return { app, user, tokens: tokensOf(await service.exchange(app, code)) }
}

describe('an app that may ask for answers', () => {
  test('asks for them in a line of its own, in both languages, and any other app says that it cannot see them', async () => {
    const user = await service.createUser()
    const [asks, cannot] = [await service.createApp({ readsAnswers: true }), await service.createApp()]
    for (const language of ['en', 'zh'] as const) {
      const visitor = service.visitor(language)
      const page = await service.authorizationPage(visitor, asks, user)
      expect(page.html.text).toContain(READ_ANSWERS[language])
      const other = await service.authorizationPage(visitor, cannot, user)
      expect(other.html.text).not.toContain(READ_ANSWERS[language])
      if (language === 'en') expect([page, other].map(({ html }) => html.text.includes(CANNOT))).toEqual([false, true])
    }
  })

  test('reads them with the grants whose users were asked for them, and no grant from before widens', async () => {
    const before = await service.grantAccess()
    const { app, user } = before
    await letAskForAnswers(app)
    expect(await refusalOf(before)).toBe('ANSWERS_NOT_GRANTED')
    expect((await service.surveys(before)).code).toBe('OK')
    const refreshed = await service.refresh(app, before.tokens.refresh_token)
    expect(await refusalOf(before, { accessToken: refreshed.data.access_token })).toBe('ANSWERS_NOT_GRANTED')

    const consented = await service.grantAccess({ app, user })
    expect(await refusalOf(consented)).toBe('')
    const newer = await service.refresh(app, consented.tokens.refresh_token)
    expect(await refusalOf(consented, { accessToken: newer.data.access_token })).toBe('')
    expect(await refusalOf(before), 'the grant from before').toBe('ANSWERS_NOT_GRANTED')
    expect(await refusalOf(await service.grantAccess({ app }))).toBe('')
  })

  test('is refused them on the very next request once it may not, and has back what users consented to when it may again', async () => {
    const app = await service.createApp({ readsAnswers: true })
    const consented = await service.grantAccess({ app })
    expect(await refusalOf(consented)).toBe('')
    await letAskForAnswers(app, false)
    expect(await refusalOf(consented)).toBe('ANSWERS_NOT_GRANTED')
    const narrower = await service.grantAccess({ app, user: consented.user })
    await letAskForAnswers(app)
    expect(await refusalOf(consented)).toBe('')
    expect(await refusalOf(narrower)).toBe('ANSWERS_NOT_GRANTED')
  })

  test('is told first what is wrong with its token', async () => {
    const access = await service.grantAccess()
    expect(await refusalOf(access, { accessToken: 'sat_unknown' })).toBe('INVALID_TOKEN')
    expect(await refusalOf(access, { openid: 'o_else' })).toBe('CLAIM_ERROR')
    expect(await refusalOf(access, { openid: access.tokens.openid })).toBe('ANSWERS_NOT_GRANTED')
    const [grant] = await grantsOf(access.app)
    await service.admin.revokeGrant({ grantId: grant?.grantId ?? '' })
    expect(await refusalOf(access)).toBe('INVALID_TOKEN')
    await service.admin.setAppDisabled({ appid: access.app.appid, disabled: true })
    expect(await refusalOf(access)).toBe('INVALID_APPID')
  })
})

test('an app that is told answers_not_granted sends the user through the page again, and then reads answers with the new token', async () => {
  const before = await service.grantAccess()
  const { app, user } = before
  const [surveyId = 0] = await service.importSurveys(user, [smallSurvey()])
  const endTime = { seconds: 1_767_225_600n }
  await service.backend.survey.importAnswers({ surveyId: BigInt(surveyId), answers: [{ endTime }, { endTime }] })
  await letAskForAnswers(app)
  const refused = await service.answers(before, surveyId)
  expectError(refused, 'answers_not_granted')
  expect(refused.action).toBe('reauthorize')

  service.clock.advance({ seconds: 1 })
  const after = await service.grantAccess({ app, user })
  expect((await service.answers(after, surveyId)).data).toMatchObject({ total: 2, last_answer_id: 2 })
  expect((await service.survey(after, `${surveyId}/answers/2`)).data).toMatchObject({ answer_id: 2 })
  expectError(await service.answers(before, surveyId), 'answers_not_granted')
  expect((await service.survey(before, surveyId)).code).toBe('OK')

  await service.backend.runJanitors()
  const [old, now] = await grantsOf(app)
  expect([old?.answersReadTime, now?.answersReadTime]).toEqual([undefined, expect.anything()])
  await letAskForAnswers(app, false)
  expectError(await service.answers(after, surveyId), 'answers_not_granted')
  expectError(await service.survey(after, `${surveyId}/answers/2`), 'answers_not_granted')
})

test('somebody who has connected the app before is told that reading answers is new, until that is confirmed', async () => {
  const NEW = 'Reading answers is new'
  const { app, user } = await service.grantAccess()
  const visitor = service.visitor()
  const textOf = async (whom = user) => (await service.authorizationPage(visitor, app, whom)).html.text
  expect(await textOf()).not.toContain(NEW)
  await letAskForAnswers(app)
  expect(await textOf()).toContain(NEW)
  await service.grantAccess({ app, user })
  expect(await textOf()).not.toContain(NEW)
  const newcomer = await service.createUser()
  expect((await service.authorizationPage(service.visitor(), app, newcomer)).html.text).not.toContain(NEW)
})

describe('a confirmation means what was shown', () => {
  test('an app that may ask for answers only since then does not get them', async () => {
    const [app, user] = [await service.createApp(), await service.createUser()]
    const access = await confirmedAfter(app, user, () => letAskForAnswers(app))
    expect(await refusalOf(access)).toBe('ANSWERS_NOT_GRANTED')
  })

  test('an app that may not ask for answers any more does not read them', async () => {
    const [app, user] = [await service.createApp({ readsAnswers: true }), await service.createUser()]
    const access = await confirmedAfter(app, user, () => letAskForAnswers(app, false))
    expect(await refusalOf(access)).toBe('ANSWERS_NOT_GRANTED')
  })

  test('a form that is given the words of another is none of ours', async () => {
    const [app, asks] = [await service.createApp(), await service.createApp({ readsAnswers: true })]
    const user = await service.createUser()
    const visitor = service.visitor()
    const wider = decisionForm(await service.authorizationPage(visitor, asks, user)).fields.consent_version ?? ''
    const page = await service.authorizationPage(visitor, app, user)
    const form = decisionForm(page)
    expect(form.fields.consent_version).not.toBe(wider)
    const reply = await visitor.submit(page, form, { decision: 'confirm', consent_version: wider })
    expect(reply.headers.get('location') ?? '').not.toContain('code=')
  })

  test('a form whose words none of our pages has any more is shown anew, whoever has signed it', async () => {
    const [app, user] = [await service.createApp({ readsAnswers: true }), await service.createUser()]
    const visitor = service.visitor()
    const page = await service.authorizationPage(visitor, app, user)
    const [, formKey = ''] = [...visitor.cookies].find(([name]) => name.endsWith('form_key')) ?? []
    const [, sessionToken] = [...visitor.cookies].find(([name]) => name.endsWith('session')) ?? []
    const signed = (consentVersion: string) => {
      const about = [app.appid, app.redirectUri, 'code', 'snsapi_user', '', '', '', consentVersion]
      const [now, use] = [service.clock.now(), { form: 'authorization', sessionToken, about } as const]
      return { consent_version: consentVersion, csrf: signForm(formKey, use, newFormId(randomBytes, now), now) }
    }
    const { consent_version: shown = '' } = decisionForm(page).fields
    const send = (fields: object) => visitor.submit(page, decisionForm(page), { decision: 'confirm', ...fields })
    const [unknown, known] = [await send(signed('0123456789ab')), await send(signed(shown))]
    expect(unknown.text).toContain('form has expired')
    expect([unknown, known].map(({ headers }) => headers.get('location')?.includes('code=') ?? false)).toEqual([
      false,
      true,
    ])
  })

  test('a form that was confirmed with other permissions or other words yields another code', async () => {
    const { appid, redirectUri } = await service.createApp({ readsAnswers: true })
    const { account, token } = service.backend.asGateway
    const { sessionToken } = await account.signIn({ ...(await service.createUser()), source: '192.0.2.1' })
    const asked = { sessionToken, requestId: 'the first of the forms', appid, redirectUri, scope: 'snsapi_user' }
    const consents = [{}, { permissions: [Permission.READ_ANSWERS] }, { consentVersion: 'other' }, {}]
    const codes = await Promise.all(consents.map((consent) => token.issueCode({ ...asked, ...consent })))
    expect(new Set(codes.map(({ code }) => code)).size).toBe(3)
  })
})

describe('what was consented to', () => {
  test('is recorded with the grant and the words that were shown, and in the audit trail', async () => {
    const [app, user] = [await service.createApp(), await service.createUser()]
    await service.grantAccess({ app, user })
    await letAskForAnswers(app)
    for (const language of ['en', 'zh', 'zh']) {
      service.clock.advance({ seconds: 1 })
      await service.grantAccess({ app, user, visitor: service.visitor(language) })
    }
    const grants = await grantsOf(app)
    expect(grants.map(({ permissions }) => permissions)).toEqual([[], ...Array(3).fill([Permission.READ_ANSWERS])])
    const versions = grants.map(({ consentVersion }) => consentVersion)
    for (const version of versions) expect(version).toMatch(/^[0-9a-f]{12}$/)
    expect(new Set(versions.slice(0, 3)).size).toBe(3)
    expect(versions[3]).toBe(versions[2])
    const { events } = await service.admin.listAuditEvents({ appid: app.appid })
    const notes = events.flatMap(({ kind, note }) => (kind === 'code.issued' ? [note] : [])).reverse()
    expect(notes).toEqual(['', ...versions.slice(1).map((version) => `read_answers, as worded in ${version}`)])
  })

  test('is on the page of connected apps, with when answers were last read, until the app may not', async () => {
    const app = await service.createApp({ readsAnswers: true })
    const access = await service.grantAccess({ app })
    const visitor = await service.signedIn(access.user)
    const textOf = async () => (await visitor.open('/connect/apps')).html.text
    const CAN = 'Can also read the answers to your surveys'
    expect(await textOf()).toMatch(new RegExp(`${CAN}.* Answers last read never`))
    expect((await grantsOf(app))[0]?.answersReadTime).toBeUndefined()

    service.clock.advance({ minutes: 2 })
    await service.surveys(access)
    await service.backend.runJanitors()
    expect(await textOf(), 'surveys are not answers').toContain('Answers last read never')
    expect(await refusalOf(access)).toBe('')
    await service.backend.runJanitors()
    const page = await visitor.open('/connect/apps')
    expect(page.html.text).not.toContain('never')
    const read = new Date(service.clock.now()).toISOString().slice(0, 16)
    const times = page.html.tags.flatMap(({ name, attributes }) => (name === 'time' ? [attributes.datetime] : []))
    expect(times.filter((time) => time?.startsWith(read)).length).toBeGreaterThanOrEqual(2) // last use, and answers
    expect((await grantsOf(app))[0]?.answersReadTime).toBeDefined()

    await letAskForAnswers(app, false)
    expect(await textOf()).not.toContain(CAN)
  })
})

test('with ANSWERS=off nobody is asked for answers, and no app reads them, whatever users consented to', async () => {
  const off = await startService({ env: { ANSWERS: 'off' } })
  const [app, user] = [await off.createApp({ readsAnswers: true }), await off.createUser()]
  const page = await off.authorizationPage(off.visitor(), app, user)
  expect(page.html.text).not.toContain(READ_ANSWERS.en)
  expect(page.html.text).toContain(CANNOT)
  const { account, token } = off.backend.asGateway
  const { sessionToken } = await account.signIn({ ...user, source: '192.0.2.1' })
  const { appid, redirectUri } = app
  const asked = { sessionToken, requestId: 'a form from before that', appid, redirectUri, scope: 'snsapi_user' }
  const { code } = await token.issueCode({ ...asked, permissions: [Permission.READ_ANSWERS] })
  const access = { app, user, tokens: tokensOf(await off.exchange(app, code)) }
  expect(await refusalOf(access, {}, off)).toBe('ANSWERS_NOT_GRANTED')
  const { apps } = await account.listConnectedApps({ sessionToken })
  expect(apps.map(({ readsAnswers }) => readsAnswers)).toEqual([false])
})

test('a permission that is unknown is refused, and never taken for none', async () => {
  const { app, tokens } = await service.grantAccess()
  const asked = { appid: app.appid, accessToken: tokens.access_token, permission: 99 as Permission }
  await expect(service.backend.token.verifyAccessToken(asked)).rejects.toMatchObject({ code: Code.InvalidArgument })
})
