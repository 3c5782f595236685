// The example app against a service that answers as the documented one does.
import { once } from 'node:events'
import { createServer, type Server } from 'node:http'
import { type AddressInfo, connect as connectSocket } from 'node:net'
import { setTimeout } from 'node:timers/promises'
import { afterEach, beforeEach, expect, onTestFinished, test, vi } from 'vitest'
import { startThirdPartyApp } from '../../examples/third-party-app/app.js'
import { Visitor } from '../harness/visitor.js'

let service: Server
let app: Awaited<ReturnType<typeof startThirdPartyApp>>
let visitor: Visitor
let liveToken = 'token1'
/** The service's answers wait for this. */
let held = Promise.resolve()
let isEnded = false
const asked: string[] = []

const invalidToken = { type: 'invalid_token', action: 'refresh' }
const invalidRefreshToken = { type: 'invalid_refresh_token', action: 'reauthorize' }
let expired = invalidToken

let surveys = [{ id: 7, title: '<b>满意度</b>', state: 2 }]
const matrix = {
  title: 'How was it?',
  type: 'matrix_radio',
  options: [{ text: 'Good' }],
  subTitles: [{ text: 'Lunch' }],
}
const pages = [
  { questions: [{ title: 'Why?', type: 'text' }] },
  { questions: [{ title: 'Now the food', type: 'description' }, matrix] },
]
const survey = { ...surveys[0], topic_count: 2, pages }

beforeEach(async () => {
  asked.length = 0
  liveToken = 'token1'
  held = Promise.resolve()
  isEnded = false
  expired = invalidToken
  service = createServer((request, response) => {
    const url = new URL(request.url ?? '/', 'http://service')
    asked.push(url.pathname)
    const text = JSON.stringify({ error: { type: '' }, request_id: 'r', data: {}, ...answer(url) })
    held.then(() => response.end(text))
  }).listen(0, '127.0.0.1')
  await once(service, 'listening')
  const baseUrl = `http://127.0.0.1:${(service.address() as AddressInfo).port}`
  app = await startThirdPartyApp({ baseUrl, appid: 'app1', secret: 'secret1', port: 0 })
  visitor = new Visitor(app.url)
})

afterEach(async () => {
  await app.close()
  service.closeAllConnections()
  service.close()
})

function answer({ pathname, searchParams }: URL): object {
  const token = searchParams.get('access_token')
  if (token !== null && token !== liveToken) return { code: 'PermissionDenied', error: expired }
  const ok = (data: object) => ({ code: 'OK', data })
  if (pathname === '/api/oauth2/access_token') return ok({ access_token: 'token1', refresh_token: 'r1', openid: 'o1' })
  if (pathname === '/api/oauth2/refresh_token' && isEnded)
    return { code: 'PermissionDenied', error: invalidRefreshToken }
  if (pathname === '/api/oauth2/refresh_token') return ok({ access_token: liveToken, expires_in: 1 })
  if (pathname === '/api/oauth2/user') return ok({ openid: 'o1', nickname: '<i>Lin</i>', avatar: '' })
  if (pathname === '/api/surveys') {
    const [page = 1, perPage = 20] = [searchParams.get('page') ?? 1, searchParams.get('per_page') ?? 20].map(Number)
    return ok({ total: surveys.length, list: surveys.slice((page - 1) * perPage, page * perPage) })
  }
  return pathname === '/api/surveys/7' ? ok(survey) : { code: 'NotFound', error: { type: 'survey_not_found' } }
}

async function connect(): Promise<string> {
  const link = new URL((await visitor.request('/connect')).headers.get('location') ?? '')
  expect(link.hash).toBe('#wj_redirect')
  expect(link.searchParams.get('redirect_uri')).toBe(`${app.url}/callback`)
  expect(link.searchParams.get('state')).toMatch(/^[a-zA-Z0-9]{32}$/)
  return link.searchParams.get('state') ?? ''
}

test('a page refers to its style and icon, which its policy lets browsers load', async () => {
  const page = await visitor.open('/')
  const policy = page.headers.get('content-security-policy')
  expect(policy).toMatch(/style-src 'self'; img-src 'self'/)
  for (const { name, attributes } of page.html.tags.filter((tag) => tag.name === 'link')) {
    const { status, headers } = await visitor.request(attributes.href ?? '')
    const type = attributes.rel === 'icon' ? 'image/svg+xml' : 'text/css; charset=utf-8'
    expect([name, status, headers.get('content-type')]).toEqual(['link', 200, type])
  }
  expect(page.html.tags.filter(({ name }) => name === 'link')).toHaveLength(2)
})

test('a connected visitor sees who they are, their surveys and one of them, all escaped', async () => {
  const page = await visitor.open(`/callback?code=c1&state=${await connect()}`)
  expect(new URL(page.url).pathname).toBe('/')
  expect(page.html.text).toContain('<i>Lin</i>')
  expect(page.html.text).toContain('<b>满意度</b>')
  expect((await visitor.open('/surveys/7')).html.text).toContain('Why?')
  expect(page.text).not.toMatch(/token1|secret1/)
})

test.each([21, 100, 201])('of %i surveys, each has its link', async (count) => {
  const before = surveys
  onTestFinished(() => {
    surveys = before
  })
  surveys = Array.from({ length: count }, (_, id) => ({ id, title: 'T', state: 2 }))
  const page = await visitor.open(`/callback?code=c1&state=${await connect()}`)
  expect(page.html.text).toContain(`${count} surveys`)
  const links = page.text.match(/href="\/surveys\/\d+"/g)
  expect(new Set(links).size).toBe(count)
})

test('an expired access token is refreshed once', async () => {
  await visitor.open(`/callback?code=c1&state=${await connect()}`)
  liveToken = 'token2'
  expect((await visitor.open('/')).html.text).toContain('Lin')
  expect(asked.filter((path) => path === '/api/oauth2/refresh_token')).toHaveLength(1)
})

test('the app acts on error.action, whatever the error type', async () => {
  await visitor.open(`/callback?code=c1&state=${await connect()}`)
  liveToken = 'token2'
  expired = { type: 'of_a_later_version', action: 'refresh' }
  expect((await visitor.open('/')).html.text).toContain('<i>Lin</i>')
})

test('when access has ended, every request in flight asks the visitor to connect again', async () => {
  await visitor.open(`/callback?code=c1&state=${await connect()}`)
  asked.length = 0
  liveToken = 'token2'
  isEnded = true
  let letGo = () => {}
  held = new Promise((resolve) => {
    letGo = resolve
  })
  const slow = visitor.request('/')
  await vi.waitFor(() => expect(asked).toHaveLength(1))
  held = Promise.resolve()
  const quick = await visitor.request('/')
  letGo()
  for (const { text } of [quick, await slow]) expect(text).toContain('Please connect again')
  expect((await visitor.open('/')).html.text).toContain('Turn answers into insight')
})

test.each(['', '?code=c1', '?code=c1&state=wrong'])('a callback with %j exchanges nothing', async (query) => {
  await connect()
  expect((await visitor.open(`/callback${query}`)).status).toBe(400)
  expect(asked).toEqual([])
})

test('a state is good for one callback: a second one leads to the connected page and exchanges nothing', async () => {
  const state = await connect()
  await visitor.open(`/callback?code=c1&state=${state}`)
  expect(new URL((await visitor.open(`/callback?code=c2&state=${state}`)).url).pathname).toBe('/')
  expect(asked.filter((path) => path === '/api/oauth2/access_token')).toHaveLength(1)
})

test('a callback that comes twice, as by a double click on Confirm, exchanges once, and the second waits', async () => {
  const callback = `/callback?code=c1&state=${await connect()}`
  held = setTimeout(100)
  const replies = await Promise.all([visitor.request(callback), visitor.request(callback)])
  expect(replies.map(({ headers }) => headers.get('location'))).toEqual(['/', '/'])
  expect(asked).toEqual(['/api/oauth2/access_token'])
  expect((await visitor.open('/')).html.text).toContain('Lin')
})

test('a callback that a connected visitor did not ask for is refused, and changes nothing', async () => {
  await visitor.open(`/callback?code=c1&state=${await connect()}`)
  for (const query of ['', '?code=c2', '?code=c2&state=other']) {
    const page = await visitor.open(`/callback${query}`)
    expect([page.status, page.html.text]).toEqual([400, expect.stringContaining('not meant for you')])
  }
  expect((await visitor.open('/')).html.text).toContain('Lin')
  expect(asked.filter((path) => path === '/api/oauth2/access_token')).toHaveLength(1)
})

test('questions are numbered through all pages, texts between them are not, and a matrix has rows and columns', async () => {
  await visitor.open(`/callback?code=c1&state=${await connect()}`)
  const { text } = await visitor.open('/surveys/7')
  expect(text.match(/<li value="\d">/g)).toEqual(['<li value="1">', '<li value="2">'])
  expect(text).toMatch(/Now the food.*How was it.*Rows.*Lunch.*Columns.*Good/s)
})

test('a survey that does not exist is a 404, not a failure of the service', async () => {
  await visitor.open(`/callback?code=c1&state=${await connect()}`)
  const page = await visitor.open('/surveys/8')
  expect([page.status, page.html.text]).toEqual([404, expect.stringContaining('There is no such survey')])
})

test("a state is not good in another visitor's browser", async () => {
  const state = await connect()
  expect((await new Visitor(app.url).open(`/callback?code=c1&state=${state}`)).status).toBe(400)
})

test('a visitor who refuses is told that nothing was shared', async () => {
  const page = await visitor.open(`/callback?error=access_denied&state=${await connect()}`)
  expect(page.html.text).toContain('nothing was shared')
  expect(asked).toEqual([])
})

test('a visitor who refuses, goes back and confirms is connected', async () => {
  const state = await connect()
  await visitor.open(`/callback?error=access_denied&state=${state}`)
  expect((await visitor.open(`/callback?code=c1&state=${state}`)).html.text).toContain('Lin')
})

test.each(['//', '///x', 'http://[/', '/%', '*'])('an address the app does not have is a 404: %s', async (target) => {
  const peer = connectSocket(Number(new URL(app.url).port), '127.0.0.1')
  onTestFinished(() => void peer.destroy())
  peer.write(`GET ${target} HTTP/1.1\r\nHost: a\r\n\r\n`)
  const [answer] = (await once(peer, 'data')) as [Buffer]
  expect(answer.toString()).toMatch(/^HTTP\/1.1 404 .*There is no page/s)
})
