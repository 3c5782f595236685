// What commands print with --json: each is run on a small deployment.
import { writeFileSync } from 'node:fs'
import path from 'node:path'
import { openSqliteTokenStore } from '../../services/token/store/sqlite/sqlite-token-store.js'
import { fixtures, right, serveProvider } from '../conformance/array-provider.js'
import { createProcess, type ServiceProcess } from '../harness/process.js'
import { smallSurvey } from '../harness/sample-surveys.js'
import { createDatabase } from '../postgres/shared-cluster.js'
import { grant, seed } from '../store/token-store-verbs.js'

/** By command: the members of what it prints with their types, each once. */
export async function printedMembers(): Promise<Map<string, readonly string[]>> {
  const service = await createProcess()
  const printed = new Map<string, Set<string>>()

  async function run<T>(
    command: string,
    args: readonly string[] = [],
    more: Parameters<ServiceProcess['run']>[1] = {},
  ) {
    const { exitCode, stdout, stderr } = await service.run([...command.split(' '), ...args, '--json'], more)
    if (exitCode !== 0) throw new Error(`${command} exited ${exitCode}: ${stderr}`)
    const value = JSON.parse(stdout) as T
    printed.set(command, new Set([...(printed.get(command) ?? []), ...membersOf(value)]))
    return value
  }

  function fileOf(name: string, content: unknown): string {
    const file = path.join(service.dataDir, name)
    writeFileSync(file, JSON.stringify(content))
    return file
  }

  await run('migrate')
  await run('config')
  await run('doctor')

  const { appid, secret_id } = await run<{ appid: string; secret_id: string }>('app create', [
    ...['--name', 'N', '--redirect-uri', 'https://app.example/callback', '--home-page', 'https://app.example'],
  ])
  await run('app update', [appid, '--reads-answers'])
  await run('app secret add', [appid, '--name', 'next', '--expires-in-days', '2'])
  await run('app secret revoke', [secret_id])
  await run('app list')
  for (const command of ['secret list', 'show', 'disable', 'enable', 'delete']) await run(`app ${command}`, [appid])

  const password = { input: 'correct horse\n' }
  await run('user create', ['--username', 'li.wei', '--external-id', '7', '--password-stdin'], password)
  await run('user set-password', ['li.wei', '--password-stdin'], password)
  await run('user update', ['li.wei', '--nickname', 'Li'])
  await run('user link', ['li.wei', '--provider', 'corp', '--subject', 's'])
  for (const command of ['show', 'sign-out', 'disable', 'enable']) await run(`user ${command}`, ['li.wei'])
  await run('user unlink', ['--provider', 'corp', '--subject', 's'])
  await run('user import', [fileOf('users.ndjson', { external_id: '1', username: 'bo' })])
  await run('user list')
  await run('user hashes')

  const survey = fileOf('survey.json', { ...smallSurvey(), id: 7 })
  await run('survey import', [survey, '--owner', 'li.wei'])
  for (const command of ['list', 'export']) await run(`survey ${command}`)
  await run('survey show', ['7'])
  const answers = fileOf('answers.ndjson', { answer_id: 1, ended_at: 1_767_225_660, answer: [] })
  await run('survey answers import', [answers, '--survey', '7'])
  await run('survey answers delete', ['1', '--survey', '7'])

  const url = await createDatabase()
  await run('store copy', [], { env: { TOKEN_DATABASE_URL: url, SURVEY_DATABASE_URL: url } })
  await run('backup', [path.join(service.dataDir, 'backup.tar')])
  await grants(service)
  const [first] = await run<readonly { grant_id: string }[]>('grant list')
  await run('grant revoke', [first?.grant_id ?? ''])
  await run('grant revoke', ['--username', 'ann'])
  await run('grant list')
  await run('survey delete', ['7'])
  await run('user disable', ['li.wei'])
  await run('user delete', ['li.wei'])
  await run('audit list')
  const provider = ['--url', await serveProvider(right), '--fixtures', fileOf('fixtures.json', fixtures)]
  await run('conformance provider', [...provider, '--only', 'SP-01'])
  return new Map([...printed].map(([command, members]) => [command, [...members]]))
}

/** Of one user to two apps. */
async function grants({ dataDir }: ServiceProcess): Promise<void> {
  const store = openSqliteTokenStore({ file: path.join(dataDir, 'token.db') })
  await seed(store)
  for (const appid of ['app1', 'app2']) await grant(store, { appid })
  await store.close()
}

function membersOf(value: unknown, at = ''): string[] {
  if (Array.isArray(value)) return value.flatMap((one) => membersOf(one, `${at}[]`))
  if (typeof value !== 'object' || value === null) return [`${at} ${value === null ? 'null' : typeof value}`]
  return Object.entries(value).flatMap(([name, one]) => membersOf(one, at === '' ? name : `${at}.${name}`))
}
