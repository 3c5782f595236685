// The platforms of examples/platform, each a process of its own, sign people in as their README says.
import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import { freePort } from '../harness/free-port.js'
import type { Reply } from '../harness/http.js'
import { type Environment, startProcess } from '../harness/process.js'
import { authorizePath, CALLBACK } from '../harness/verbs.js'
import { formWith, Visitor } from '../harness/visitor.js'

vi.setConfig({ testTimeout: 120_000 }) // spawns a service and the platform

const FOLDER = fileURLToPath(new URL('../../examples/platform', import.meta.url))
const platforms: Record<string, readonly string[]> = { 'main.js': [process.execPath, 'main.js'] }
if (spawnSync('python3', ['--version']).status === 0) platforms['platform.py'] = ['python3', 'platform.py']

/** Once it says that it listens. */
async function startPlatform([program = '', ...args]: readonly string[], env: Environment): Promise<ChildProcess> {
  const { PATH = '', HOME = '' } = process.env
  const child = spawn(program, args, {
    cwd: FOLDER,
    env: { PATH, HOME, LANG: 'C.UTF-8', PYTHONDONTWRITEBYTECODE: '1', ...env },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  onTestFinished(() => void child.kill())
  expect(String((await once(child.stdout, 'data'))[0])).toBe(`SIGN_IN_URL=http://127.0.0.1:${env.PORT}/sign-in\n`)
  return child
}

const locationOf = ({ headers }: Reply) => new URL(headers.get('location') ?? '')
const pathOf = ({ pathname, search }: URL) => pathname + search

describe.each(Object.entries(platforms))('the platform of %s', (_, command) => {
  test('signs in, signs in again without asking, asks who switches, cancels and signs out everywhere', async () => {
    const PORT = String(await freePort())
    const platformUrl = `http://127.0.0.1:${PORT}`
    const service = await startProcess({ SIGN_IN_URL: `${platformUrl}/sign-in` })
    await startPlatform(command, { PORT, RPC_URL: `unix:${path.join(service.dataDir, 'rpc.sock')}` })
    const created = ['app', 'create', '--name', 'Chart <Maker>', '--redirect-uri', CALLBACK]
    const { appid } = await service.json<{ appid: string }>(created)
    const link = authorizePath({ appid, redirectUri: CALLBACK }, 'kept')
    const here = new Visitor(service.url)
    const there = new Visitor(platformUrl)
    const submit = async (page: Awaited<ReturnType<Visitor['open']>>, action: string, sent = {}) => {
      const form = page.html.forms.find((each) => each.action === action)
      if (!form) throw new Error(`no form for ${action} on: ${page.text}`)
      return there.submit(page, form, sent)
    }
    const back = (reply: Reply) => here.open(pathOf(locationOf(reply)))

    const page = await there.open(pathOf(locationOf(await here.request(link))))
    expect(page.html.text).toContain('Chart <Maker>')
    const wrong = await submit(page, '/sign-in', { name: 'ming', password: 'wrong' })
    expect(wrong.status).toBe(403)
    const entered = await submit(page, '/sign-in', { name: 'ming', password: 'ming-password' })
    expect((await back(entered)).html.text).toContain('小明')

    here.cookies.delete('sa_session')
    const again = await there.request(pathOf(locationOf(await here.request(link))))
    const consent = await back(again)
    const leave = consent.html.forms.find(({ action }) => action.includes('/connect/sign-out'))
    if (!leave) throw new Error('no way to switch')
    const asked = await there.open(pathOf(locationOf(await here.submit(consent, leave))))
    expect(formWith(asked, 'password')).toBeDefined()
    const refused = await here.request(pathOf(locationOf(await submit(asked, '/cancel'))))
    expect(`${locationOf(refused)}`).toBe(`${CALLBACK}?error=access_denied&state=kept`)

    const over = await there.request(`/sign-in?sign_in_challenge=${'x'.repeat(43)}`)
    expect(over.status).toBe(502)

    const restarted = await there.request(pathOf(new URL(asked.url)))
    expect(restarted.status).toBe(303)
    expect(`${locationOf(restarted)}`).toContain(`${service.url}${link}`)

    await back(await there.request(pathOf(locationOf(await here.request(link)))))
    expect((await here.request('/connect/apps')).status).toBe(200)
    expect((await submit(await there.open('/'), '/sign-out')).headers.get('location')).toBe('/')
    expect((await here.request('/connect/apps')).status).toBe(303)
    expect((await there.open('/')).html.text).toContain('Nobody is signed in')
  })
})
