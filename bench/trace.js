// `npm run trace`: the files and functions of the product that run for one warm request, by V8's own coverage. A map for whoever
// wants to follow a request through the code.
import { mkdtempSync, rmSync } from 'node:fs'
import { Session } from 'node:inspector/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { buildIfNeeded } from '../bin/build-if-needed.js'
import { importOfDist, root } from './root.js'

/** Requests of a kind before the one that is looked at: what is compiled, kept or opened once is not part of it. */
const WARM_UP = 20
const REDIRECT_URI = 'http://127.0.0.1/callback'
const PASSWORD = 'a password of nobody'

const USAGE = `npm run trace -- [options]

  --functions   name the functions too, in the order in which they stand in their files
  --help
`

const { functions, help } = options()
if (help) process.stdout.write(USAGE)
else {
  buildIfNeeded()
  await main()
}

function options() {
  try {
    return parseArgs({ options: { functions: { type: 'boolean' }, help: { type: 'boolean' } } }).values
  } catch (error) {
    process.stderr.write(`${error.message}\n\n${USAGE}`)
    process.exit(2)
  }
}

async function main() {
  const dataDir = mkdtempSync(path.join(tmpdir(), 'survey-auth-trace-'))
  const { readConfig } = await importOfDist('bin/config.js')
  const { start } = await importOfDist('bin/compose/start.js')
  const env = {
    DATA_DIR: dataDir,
    PORT: '0',
    ADMIN_PORT: '0',
    RPC_LISTEN: 'off',
    RATE_LIMIT: 'off',
    LOG_LEVEL: 'error',
  }
  const service = await start('all', readConfig(env))
  try {
    const requests = await requestsTo(service)
    for (const [name, request] of Object.entries(requests)) print(name, await filesOf(request))
  } finally {
    await service.close()
    rmSync(dataDir, { recursive: true, force: true })
  }
}

/** A function for each kind of request; it makes one, and fails unless that is answered as it should be. */
async function requestsTo(service) {
  const { AccountService } = await importOfDist('gen/surveyauth/v1/account_service_pb.js')
  const { AdminService } = await importOfDist('gen/surveyauth/v1/admin_service_pb.js')
  const { SurveyService } = await importOfDist('gen/surveyauth/v1/survey_service_pb.js')
  const { TokenService } = await importOfDist('gen/surveyauth/v1/token_service_pb.js')
  const [account, token] = [AccountService, TokenService].map((of) => service.client(of, 'gateway'))
  const [admin, surveys] = [AdminService, SurveyService].map((of) => service.client(of, 'operator'))
  const { app, secret } = await admin.createApp({ name: 'Trace', redirectUris: [REDIRECT_URI] })
  const { user } = await admin.createUser({ username: 'trace', password: PASSWORD })
  const [survey] = (await surveys.importSurveys({ ownerUserId: user.userId, surveys: [{ title: 'Trace' }] })).surveys
  const { sessionToken } = await account.signIn({ username: 'trace', password: PASSWORD, source: '127.0.0.1' })
  let forms = 0
  const issue = async () => {
    forms += 1
    const form = { sessionToken, requestId: `request ${forms}`.padEnd(16), scope: 'snsapi_user' }
    return (await token.issueCode({ ...form, appid: app.appid, redirectUri: REDIRECT_URI })).code
  }
  const get = async (route, query) => {
    const response = await fetch(`${service.url}/api/${route}?${new URLSearchParams({ appid: app.appid, ...query })}`)
    const { code, data } = await response.json()
    if (code !== 'OK') throw new Error(`${route} answered ${code}`)
    return data
  }
  const exchange = (code) => get('oauth2/access_token', { secret, code, grant_type: 'authorization_code' })
  const codes = []
  for (let n = 0; n < WARM_UP + 3; n += 1) codes.push(await issue())
  const { access_token, openid } = await exchange(codes.pop())
  const { refresh_token } = await exchange(codes.pop())
  return {
    'confirm (IssueCode)': issue,
    exchange: () => exchange(codes.pop()),
    refresh: () => get('oauth2/refresh_token', { refresh_token, grant_type: 'refresh_token' }),
    user: () => get('oauth2/user', { access_token, openid }),
    'survey list': () => get('surveys', { access_token, openid }),
    'survey detail': () => get(`surveys/${survey.id}`, { access_token }),
  }
}

/** The files that run for one request, with the functions in each. */
async function filesOf(request) {
  for (let n = 0; n < WARM_UP; n += 1) await request()
  const session = new Session()
  session.connect()
  await session.post('Profiler.enable')
  await session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: false })
  await request()
  const { result } = await session.post('Profiler.takePreciseCoverage')
  session.disconnect()
  const dist = path.join(root, 'dist') + path.sep
  return result.flatMap(({ url, functions }) => {
    const file = url.startsWith('file:') ? fileURLToPath(url) : ''
    const ran = functions.filter(({ ranges }) => ranges[0].count > 0).map(({ functionName }) => functionName)
    if (!file.startsWith(dist) || ran.length === 0) return []
    return [{ file: file.slice(dist.length).replace(/\.js$/, '.ts'), functions: ran.filter((name) => name !== '') }]
  })
}

function print(name, files) {
  process.stdout.write(`\n${name}: ${files.length} files\n`)
  for (const { file, functions: ran } of files.toSorted((a, b) => (a.file < b.file ? -1 : 1))) {
    process.stdout.write(`  ${file}${functions ? `  ${[...new Set(ran)].join(', ')}` : ''}\n`)
  }
}
