// The command line as a newcomer meets it.
import { readFileSync } from 'node:fs'
import { type Command, CommanderError } from 'commander'
import { describe, expect, test, vi } from 'vitest'
import { EXIT } from '../../bin/exit.js'
import { createProgram } from '../../bin/main.js'
import { SURVEY_EVENT_KINDS } from '../../services/survey/store/survey-event.js'
import { AUDIT_KINDS } from '../../services/token/store/token-store.js'
import { freePort } from '../harness/free-port.js'
import { createProcess } from '../harness/process.js'

vi.setConfig({ testTimeout: 60_000 }) // each test spawns processes

const CONTRACT = [
  'serve',
  'demo',
  'app create',
  'app list',
  'app show',
  'app update',
  'app disable',
  'app enable',
  'app delete',
  'app secret add',
  'app secret list',
  'app secret revoke',
  'user create',
  'user list',
  'user show',
  'user update',
  'user disable',
  'user enable',
  'user set-password',
  'user delete',
  'survey import',
  'survey delete',
  'survey list',
  'survey show',
  'survey export',
  'grant list',
  'grant revoke',
  'audit list',
  'migrate',
  'backup',
  'store copy',
  'doctor',
  'conformance provider',
  'config',
  'completion',
  'man',
]

/** Every command, groups of commands among them, by the words of its name. */
function commandsFrom(command: Command, words: readonly string[] = []): [string, Command][] {
  const below = command.commands.flatMap((child) => commandsFrom(child, [...words, child.name()]))
  return [[words.join(' '), command], ...below]
}

function helpOf(command: Command): string {
  let help = ''
  command.configureOutput({
    writeOut: (text) => {
      help += text
    },
  })
  command.outputHelp()
  return help
}

/** The command lines that a help shows. */
function examplesIn(help: string): string[] {
  return [...help.matchAll(/^ +\$ survey-auth (.+)$/gm)].map(([, line = '']) => line)
}

/** What a shell makes of it: no comment, quotes or redirections, and one word of what another command prints. */
function argumentsOf(line: string): string[] {
  const words = line.replace(/ [<>] \S+| +#.*$/g, '').match(/"[^"]*"|(\$\(.*?\)|\S)+/g) ?? []
  return words.map((word) => word.replaceAll('"', ''))
}

/** Why the parser refuses them; undefined when a command would begin, or show its help. */
async function refusalOf(args: readonly string[]): Promise<string | undefined> {
  const program = createProgram()
  for (const [, command] of [['', program] as const, ...commandsFrom(program)]) {
    command.action(() => undefined).configureOutput({ writeOut: () => undefined, writeErr: () => undefined })
  }
  try {
    await program.parseAsync(args, { from: 'user' })
    return undefined
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error
    return error.exitCode === 0 ? undefined : error.message
  }
}

const all = commandsFrom(createProgram())
/** Those that do something. */
const commands = new Map(all.filter(([, { commands }]) => commands.length === 0))
const groups = all.filter(([, { commands }]) => commands.length > 0)

describe('help', () => {
  test('the commands of the contract are there', () => {
    expect([...commands.keys()]).toEqual(expect.arrayContaining(CONTRACT))
  })

  test.each([...commands])('survey-auth %s --help explains itself with an example', (words, command) => {
    const help = helpOf(command)
    expect(help).toContain(`Usage: survey-auth ${words}`)
    expect(help).toContain(`$ survey-auth ${words}`)
    expect(command.description()).not.toBe('')
  })

  test.each(groups)("survey-auth %s --help gives examples of this group's commands", (words, group) => {
    const shown = examplesIn(helpOf(group))
    expect(shown).not.toEqual([])
    const names = [...commands.keys()].filter((name) => name.startsWith(words))
    for (const line of shown) expect(names.some((name) => line === name || line.startsWith(`${name} `))).toBe(true)
  })

  test.each([['', createProgram()] as const, ...all])(
    'each example of survey-auth %s --help is a command line that would run',
    async (_, command) => {
      const shown = examplesIn(helpOf(command))
      const refused = await Promise.all(shown.map(async (line) => [line, await refusalOf(argumentsOf(line))]))
      expect(refused).toEqual(shown.map((line) => [line, undefined]))
    },
  )

  test.each([...commands])('survey-auth %s --help shows no default that would be refused', (_, command) => {
    expect(helpOf(command)).not.toContain('(default: "")')
  })

  test('survey-auth app secret --help and app secret revoke --help show the same arguments', () => {
    const revoke = commands.get('app secret revoke') as Command
    expect(helpOf(revoke)).toContain('revoke [options] <id> [secret_id]\n')
    expect(helpOf(revoke.parent as Command)).toMatch(/^ +revoke \[options\] <id> \[secret_id\] /m)
  })

  test('survey-auth survey export --help shows --json, which it takes', () => {
    expect(helpOf(commands.get('survey export') as Command)).toMatch(/--json +/)
  })

  test.each([
    [['help'], 'Usage: survey-auth [options]'],
    [['help', 'app'], 'Usage: survey-auth app [options]'],
    [['app', 'help', 'create'], 'Usage: survey-auth app create [options]'],
  ])('survey-auth %j shows help', async (args, usage) => {
    const service = await createProcess()
    const { exitCode, stdout, stderr } = await service.run(args)
    expect({ exitCode, stderr }).toEqual({ exitCode: 0, stderr: '' })
    expect(stdout).toContain(usage)
  })

  test('survey-auth config --help tells of each variable its default and its meaning', async () => {
    const service = await createProcess()
    const { exitCode, stdout } = await service.run(['config', '--help'])
    expect(exitCode).toBe(0)
    const known = await service.json<readonly { variable: string; about: string }[]>(['config'])
    expect(known.length).toBeGreaterThan(50)
    for (const { variable, about } of known) {
      expect(stdout).toMatch(new RegExp(`^  ${variable}=.*$`, 'm'))
      expect(stdout).toContain(`\n      ${about}\n`)
    }
    expect(stdout).toContain('PUBLIC_URL=http://HOST:PORT')
    expect(stdout).toContain('ACCESS_TOKEN_TTL_SECONDS=259200')
    expect(stdout).toContain('(or TOKEN_DATABASE_URL_FILE)')
  })
})

test.each([
  [0, ['--version'], {}],
  [69, ['app', 'list'], { TOKEN_SERVICE_URL: 'unix:/nowhere/token.sock' }],
])('a spawned process ends with %i after %j with %j', async (expected, args, env) => {
  const service = await createProcess()
  expect((await service.cli(args, { env })).exitCode).toBe(expected)
})

test('--version, the first line of the log and a metric name the build', async () => {
  const adminPort = String(await freePort())
  const service = await createProcess({ ADMIN_PORT: adminPort, LOG_LEVEL: 'info' })
  const { stdout } = await service.cli(['--version'])
  expect(stdout).toMatch(/^\d+\.\d+\.\d+ \((unknown|[0-9a-f]{12}(-dirty)?)\)\n$/)
  await service.start()
  const [first = ''] = service.output.split('\n').filter((line) => line.startsWith('{'))
  expect(JSON.parse(first)).toMatchObject({
    msg: `survey-auth ${stdout.trim()}, all, starts on Node ${process.version}`,
  })
})

test('metrics tell the free disk, and when the last backup was', async () => {
  const adminPort = String(await freePort())
  const service = await createProcess({ ADMIN_PORT: adminPort })
  await service.start()
  const metric = async (series: string) => {
    const text = await (await fetch(`http://127.0.0.1:${adminPort}/metrics`)).text()
    return Number(
      text
        .split('\n')
        .find((line) => line.startsWith(`${series} `))
        ?.split(' ')[1],
    )
  }
  expect(await metric('survey_auth_disk_free_bytes{store="token"}')).toBeGreaterThan(0)
  const madeAt = await metric('survey_auth_last_backup_timestamp_seconds{store="survey"}')
  expect((await service.cli(['backup', 'backup.tar'])).exitCode).toBe(0)
  expect(await metric('survey_auth_last_backup_timestamp_seconds{store="survey"}')).toBeGreaterThan(madeAt)
})

test('the kinds of events are those that docs/operators/access.md explains', () => {
  const page = readFileSync(new URL('../../docs/operators/access.md', import.meta.url), 'utf8')
  const [, table = ''] = page.split('\n## Who did what?\n')
  const explained = table.split('\n').flatMap((row) => row.split('|', 2)[1]?.match(/[a-z_]+\.[a-z_]+/g) ?? [])
  expect([...AUDIT_KINDS, ...SURVEY_EVENT_KINDS].sort()).toEqual(explained.sort())
})

test('the exit codes are those that docs/operators/run.md and --help explain', () => {
  const page = readFileSync(new URL('../../docs/operators/run.md', import.meta.url), 'utf8')
  const [, table = ''] = page.split('\n## What does an exit code mean?\n')
  const explained = [...table.matchAll(/^\| (\d+) +\|/gm)].map(([, code]) => Number(code))
  const codes = Object.values(EXIT)
  expect(explained).toEqual(codes)
  const [, line = ''] = /Exit codes: ([^.]+)\./.exec(helpOf(createProgram())) ?? []
  expect(line.match(/\d+/g)?.map(Number)).toEqual(codes)
})

describe('wrong usage exits 2, says why on stderr and prints no data', () => {
  test.each([
    ['an unknown command is answered with a suggestion', ['ap', 'list'], /did you mean app/i],
    ['an unknown subcommand', ['app', 'lst'], /did you mean list/i],
    ['an unknown option', ['app', 'list', '--jsno'], /--jsno/],
    ['a command that would change the terminal', ['x\x1b[2J'], /'x\u{fffd}\[2J'/u],
    ['an option that would change the terminal', ['app', 'list', '--x\u202e'], /'--x\u{fffd}'/u],
    ['a missing option', ['app', 'create', '--name', 'N'], /--redirect-uri/],
    ['a missing argument', ['app', 'show'], /appid/],
    ['an unknown mode', ['serve', 'everything'], /all/],
    ...['2027-02-30', '2027-04-31T00:00:00+08:00', '2027-00-10', '2027-01-32', '2026-02-29T10:00Z'].map(
      (day): [string, string[], RegExp] => [
        `a day that there is not: ${day}`,
        ['audit', 'list', '--since', day],
        /must be a time like 2027-01-31 or 2027-01-31T08:00:00Z/,
      ],
    ),
    ['an empty filter by app', ['grant', 'list', '--appid', ''], /--appid <appid>' must not be empty/],
    ['a backup to standard output', ['backup', '-'], /a backup goes to a file, not to standard output/],
    ['an empty filter by user', ['audit', 'list', '--username='], /--username <name>' must not be empty/],
    ['an empty owner', ['survey', 'list', '--owner', ''], /--owner <username>' must not be empty/],
    [
      'an empty value of several',
      ['app', 'update', 'app_x', '--redirect-uri', 'https://a/', '--redirect-uri', ''],
      /--redirect-uri/,
    ],
    ['an empty argument', ['app', 'show', ''], /argument 'appid' must not be empty/],
    ['an error of a command, with its own help', ['app', 'create'], /\(--help shows what there is\)/],
    ['help for an unknown command', ['help', 'foo'], /Usage: survey-auth/],
    ['help for a command that is not there', ['app', 'help', 'lst'], /Usage: survey-auth app/],
    ['an update of nothing', ['app', 'update', 'app_x', '--json'], /nothing to change: give --name, --redirect-uri,/],
    ['no command', [], /Usage/],
    [
      'a user with nothing to sign in by',
      ['user', 'create', '--nickname', 'N'],
      /--external-id for a user who signs in/,
    ],
    ['a password without --password-stdin', ['user', 'create', '--username', 'u'], /--password-stdin/],
    ['an empty password', ['user', 'create', '--username', 'u', '--password-stdin'], /no password/],
  ])('%s', async (_, args, said) => {
    const service = await createProcess()
    const { exitCode, stdout, stderr } = await service.run(args, { startsNothing: true })
    expect({ exitCode, stdout }).toEqual({ exitCode: 2, stdout: '' })
    expect(stderr).toMatch(said)
  })
})
