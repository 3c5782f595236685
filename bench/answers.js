// `npm run bench:answers`: a million answers to one survey, imported by command line into a running service, then read by an app: what
// a page costs at the begin, in the middle and at the end, and how much memory either process takes.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync, statSync } from 'node:fs'
import path from 'node:path'
import { buildIfNeeded } from '../bin/build-if-needed.js'
import { freePort } from '../test/harness/free-port.js'
import { scriptOptions } from '../test/harness/script-options.js'
import { Cluster } from '../test/postgres/cluster.js'
import { PASSWORD, REDIRECT_URI, SCOPE } from './person.js'
import { flagsOf, startAlone, startNode, stop, temporaryFolder, untilReady } from './processes.js'
import { root } from './root.js'
import { median, tenths } from './stats.js'

const START_MS = 60_000
const READS = 50
const FIRST_SECOND = 1_767_225_600
const PROGRAM = path.join(root, 'bin', 'survey-auth.js')

const options = scriptOptions('npm run bench:answers', {
  answers: [1_000_000, 'how many'],
  database: ['sqlite', 'where', ['sqlite', 'postgres']],
})
startAlone()
buildIfNeeded()
const cluster = options.database === 'postgres' ? await Cluster.create() : undefined
process.on('exit', () => void cluster?.destroy())
const [port, adminPort] = [await freePort(), await freePort()]
const url = `http://127.0.0.1:${port}`
const dataDir = temporaryFolder('answers')
const env = {
  PATH: process.env.PATH,
  DATA_DIR: dataDir,
  PORT: String(port),
  PUBLIC_URL: url,
  ADMIN_PORT: String(adminPort),
  RATE_LIMIT: 'off',
  ...(cluster && {
    TOKEN_DATABASE_URL: await cluster.createDatabase(),
    SURVEY_DATABASE_URL: await cluster.createDatabase(),
  }),
}
const server = startNode([PROGRAM, 'serve', 'all'], { role: 'server', env, log: path.join(dataDir, 'log') })
await untilReady(server, `http://127.0.0.1:${adminPort}`, START_MS)

const { appid, secret } = await json([
  'app',
  'create',
  '--name',
  'a',
  '--redirect-uri',
  REDIRECT_URI,
  '--reads-answers',
])
await json(['user', 'create', '--username', 'ann', '--password-stdin'], `${PASSWORD}\n`)
const survey = JSON.stringify({ title: 'a', pages: [] })
const [{ survey_id: surveyId }] = await json(['survey', 'import', '-', '--owner', 'ann'], survey)
const token = await accessToken()

const before = performance.now()
const usedBefore = usedMs(server.pid)
const imported = await command(['survey', 'answers', 'import', '-', '--survey', String(surveyId), '--json'], lines())
const seconds = (performance.now() - before) / 1_000
console.log(
  `${options.answers} answers into ${options.database} in ${tenths(seconds)} s, ${Math.round(options.answers / seconds)} a second`,
)
console.log(
  `memory at most, MiB: service ${peakMiB(server.pid)}, command ${imported.peak}; file or table ${await sizeMiB()} MiB`,
)

const micros = (ms) => tenths((ms * 1_000) / options.answers)
console.log(
  `CPU of an answer, µs: service ${micros(usedMs(server.pid) - usedBefore)}, command ${micros(imported.used)}`,
)

const middle = Math.floor(options.answers / 2)
const rows = {}
for (const [name, query] of [
  ['begin', {}],
  ['middle', { last_answer_id: middle }],
  ['end', { last_answer_id: options.answers - 1_000 }],
  ['past the end', { last_answer_id: options.answers }],
  ['since the middle', { since: FIRST_SECOND + middle }],
  ['a minute in the middle', { since: FIRST_SECOND + middle, until: FIRST_SECOND + middle + 60 }],
]) {
  rows[name] = {
    '20, ms': await read({ ...query, per_page: 20 }),
    '1000, ms': await read({ ...query, per_page: 1_000 }),
  }
}
console.table(rows)
console.log(`memory of the service at most, MiB: ${peakMiB(server.pid)}`)
await stop(server)
await cluster?.destroy()
process.exit()

/** Median of some reads, in ms. */
async function read(query) {
  const search = new URLSearchParams({ appid, access_token: token, ...query })
  const times = []
  for (let n = 0; n < READS; n += 1) {
    const startedAt = performance.now()
    const answer = await (await fetch(`${url}/api/surveys/${surveyId}/answers?${search}`)).json()
    if (answer.code !== 'OK') throw new Error(JSON.stringify(answer))
    times.push(performance.now() - startedAt)
  }
  return tenths(median(times))
}

/** An answer a second, with what five questions hold. */
function* lines() {
  const questions = [
    { id: 'q-1', type: 'radio', options: [{ id: 'o-1', checked: 1, text: '米饭' }] },
    { id: 'q-2', type: 'checkbox', options: [1, 2, 3].map((n) => ({ id: `o-${n}`, checked: 1, text: `选项 ${n}` })) },
    { id: 'q-3', type: 'star', text: '4' },
    { id: 'q-4', type: 'textarea', text: '很好，下次还来。'.repeat(4) },
    {
      id: 'q-5',
      type: 'matrix_radio',
      groups: [1, 2].map((n) => ({ id: `g-${n}`, options: [{ id: 'o-1', text: '是' }] })),
    },
  ]
  const answer = [{ id: 'p-1', questions }]
  for (let id = 1; id <= options.answers; id += 1) {
    const ended_at = FIRST_SECOND + id - 1
    yield `${JSON.stringify({ answer_id: id, respondent_id: `u-${id % 1_000}`, started_at: ended_at, ended_at, answer })}\n`
  }
}

async function json(args, input = '') {
  return JSON.parse((await command([...args, '--json'], [input])).stdout)
}

async function command(args, input) {
  const child = spawn(process.execPath, [...flagsOf(root), PROGRAM, ...args], {
    env,
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  let [stdout, peak, used] = ['', 0, 0]
  child.stdout.on('data', (text) => {
    stdout += text
  })
  const watch = setInterval(() => {
    peak = Math.max(peak, peakMiB(child.pid))
    used = Math.max(used, usedMs(child.pid))
  }, 200)
  const ended = once(child, 'close')
  for (const text of input) if (!child.stdin.write(text)) await once(child.stdin, 'drain')
  child.stdin.end()
  const [code] = await ended
  clearInterval(watch)
  if (code !== 0) throw new Error(`${args.join(' ')} ended with ${code}`)
  return { stdout, peak, used }
}

function peakMiB(pid) {
  try {
    return Math.round(Number(/^VmHWM:\s*(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1] ?? 0) / 1_024)
  } catch {
    return 0 // it has ended
  }
}

/** CPU time. */
function usedMs(pid) {
  try {
    const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1].split(' ')
    return (Number(fields[11]) + Number(fields[12])) * 10 // clock ticks
  } catch {
    return 0 // it has ended
  }
}

async function sizeMiB() {
  if (!cluster)
    return Math.round(
      (statSync(path.join(dataDir, 'survey.db')).size + statSync(path.join(dataDir, 'survey.db-wal')).size) / 2 ** 20,
    )
  const { query } = await import('../test/postgres/cluster.js')
  const [{ bytes }] = await query(env.SURVEY_DATABASE_URL, 'SELECT pg_database_size(current_database()) AS bytes')
  return Math.round(Number(bytes) / 2 ** 20)
}

/** As a person with a browser gives it. */
async function accessToken() {
  const cookies = new Map()
  const visit = async (target, form) => {
    const headers = { cookie: [...cookies].map((pair) => pair.join('=')).join('; '), origin: url }
    const body = form && new URLSearchParams(form)
    const reply = await fetch(new URL(target, url), {
      method: form ? 'POST' : 'GET',
      headers,
      body,
      redirect: 'manual',
    })
    for (const cookie of reply.headers.getSetCookie())
      cookies.set(...cookie.split(';', 1)[0].split(/=(.*)/s).slice(0, 2))
    return { text: await reply.text(), location: reply.headers.get('location') ?? '' }
  }
  const link = `/connect/oauth2/authorize?${new URLSearchParams({ appid, redirect_uri: REDIRECT_URI, response_type: 'code', scope: SCOPE })}`
  const signIn = formIn((await visit(link)).text, 'password')
  const { location } = await visit(signIn.action, { ...signIn.fields, username: 'ann', password: PASSWORD })
  const consent = formIn((await visit(location || link)).text, 'decision')
  const back = await visit(consent.action, { ...consent.fields, decision: 'confirm' })
  const code = new URL(back.location).searchParams.get('code')
  const query = new URLSearchParams({ appid, secret, code, grant_type: 'authorization_code' })
  const { data } = await (await fetch(`${url}/api/oauth2/access_token?${query}`)).json()
  return data.access_token
}

/** The form with this field: where it is sent, and what is hidden in it. */
function formIn(html, field) {
  const form = [...html.matchAll(/<form[^>]*>.*?<\/form>/gs)]
    .map(([text]) => text)
    .find((text) => text.includes(`name="${field}"`))
  if (!form) throw new Error(`no form with ${field}`)
  const text = (of) =>
    of.replaceAll('&quot;', '"').replaceAll('&#39;', "'").replaceAll('&lt;', '<').replaceAll('&amp;', '&')
  const attribute = (tag, name) => text(new RegExp(`\\b${name}="([^"]*)"`).exec(tag)?.[1] ?? '')
  const hidden = [...form.matchAll(/<input[^>]*type="hidden"[^>]*>/g)].map(([tag]) => tag)
  return {
    action: attribute(form, 'action'),
    fields: Object.fromEntries(hidden.map((tag) => [attribute(tag, 'name'), attribute(tag, 'value')])),
  }
}
