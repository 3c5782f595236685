// The files of deploy/ name variables, routes and commands of the program. These tests check that they exist.
import { execFileSync, spawn, spawnSync } from 'node:child_process'
import { cpSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import type { Command } from 'commander'
import { describe, expect, onTestFinished, test } from 'vitest'
import { parse, parseAllDocuments } from 'yaml'
import { SERVER_FLAGS } from '../bench/processes.js'
import { createProgram } from '../bin/main.js'
import { type Setting, settings } from '../bin/settings.js'
import type { Route } from '../gateway/http.js'
import { routes } from '../gateway/routes.js'
import { freePort } from './harness/free-port.js'
import { BUILD } from './harness/spawn.js'
import { temporaryDirectory } from './store/temporary-directory.js'

const ROOT = fileURLToPath(new URL('..', import.meta.url))
const FOLDER = path.join(ROOT, 'deploy')
const OURS = ['systemd', 'docker', 'nginx', 'envoy', 'haproxy', 'patroni', 'kubernetes/sqlite', 'kubernetes/postgres']

const files = OURS.flatMap((folder) => readdirSync(path.join(FOLDER, folder)).map((name) => path.join(folder, name)))
const textOf = (file: string) => readFileSync(path.join(FOLDER, file), 'utf8')
const withoutComments = (text: string) => text.replace(/(^|\s)#.*$/gm, '')
const units = files.filter((file) => /^systemd\/.*\.service$/.test(file))

const variables = new Set(
  Object.values(settings).flatMap((row: Setting<unknown>) =>
    row.isSecret ? [row.variable, `${row.variable}_FILE`] : [row.variable],
  ),
)
/** Variables of other programs, and words that only look like variables. */
const OTHERS =
  /^(NODE_ENV|POSTGRES_\w+|PG[A-Z]+|AF_(UNIX|INET6?)|LEAST_REQUEST|PASS_THROUGH|(BUILD|BASE)_IMAGE|SOURCE_(COMMIT|DATE_EPOCH)|(START|TIME)_TIME)$/

/** Variables that a file sets for the program, commented-out examples included. */
function variablesSetIn(file: string): string[] {
  const text = textOf(file)
  if (file.endsWith('.env')) return [...text.matchAll(/^#?([A-Z_0-9]+)=/gm)].map(([, name = '']) => name)
  if (file.endsWith('.service'))
    return assignmentsIn([...text.matchAll(/^Environment=(.*)$/gm)].map((match) => match[1]))
  if (file.endsWith('Dockerfile')) return assignmentsIn([...text.matchAll(/^ENV (.*)$/gm)].map((match) => match[1]))
  if (file.startsWith('kubernetes/')) return [...text.matchAll(/name: ([A-Z_]+)[,\n]/g)].map(([, name = '']) => name)
  if (!file.endsWith('compose.yaml')) return []
  const { services } = parse(text, { merge: true }) as { services: Record<string, { environment?: object }> }
  return Object.values(services).flatMap(({ environment = {} }) => Object.keys(environment))
}

function assignmentsIn(lines: readonly (string | undefined)[]): string[] {
  return lines.flatMap((line = '') => line.split(' ').map((assignment) => assignment.split('=', 1)[0] ?? ''))
}

describe('variables', () => {
  test.each(files.map((file) => [file, variablesSetIn(file)] as const).filter(([, names]) => names.length > 0))(
    'deploy/%s sets only variables of the program',
    (_, names) => {
      const unknown = names.filter((name) => !variables.has(name) && !OTHERS.test(name))
      expect(unknown).toEqual([])
    },
  )

  test.each(files)('deploy/%s mentions only variables of the program', (file) => {
    const text = textOf(file).replace(/%[A-Z_]+(\(.*?\))?%/g, '') // what Envoy puts into its log
    const words = text.match(/(?<![A-Za-z_$])[A-Z][A-Z0-9]*(_[A-Z0-9]+)+(?![A-Za-z_])/g) ?? []
    expect(words.filter((word) => !variables.has(word) && !OTHERS.test(word))).toEqual([])
  })

  test('a supervisor waits longer than the program takes to stop', () => {
    const needed = Number(settings.shutdownTimeoutSeconds.fallback)
    for (const unit of units) expect(Number(/^TimeoutStopSec=(\d+)$/m.exec(textOf(unit))?.[1])).toBeGreaterThan(needed)
    const grace = [...textOf('docker/compose.yaml').matchAll(/stop_grace_period: (\d+)s/g)].map(([, text]) =>
      Number(text),
    )
    expect(grace.length).toBeGreaterThan(0)
    for (const seconds of grace) expect(seconds).toBeGreaterThan(needed)
    for (const file of files.filter((name) => /^kubernetes\/.*(survey-auth|token|survey|gateway)\.yaml$/.test(name))) {
      const drain = Number(/DRAIN_SECONDS, value: "(\d+)"/.exec(textOf(file))?.[1] ?? 0)
      expect(Number(/terminationGracePeriodSeconds: (\d+)/.exec(textOf(file))?.[1])).toBeGreaterThan(drain + needed)
    }
  })

  test('proxies close idle connections before the gateway does', () => {
    const ours = Number(settings.httpKeepAliveSeconds.fallback)
    for (const file of ['nginx/upstream.conf', 'docker/upstream.conf'])
      expect(Number(/keepalive_timeout (\d+)s/.exec(textOf(file))?.[1])).toBeLessThan(ours)
    expect(textOf('envoy/envoy.yaml')).toMatch(
      /HttpProtocolOptions\n.*\n\s+common_http_protocol_options: \{ idle_timeout: 60s \}/,
    )
  })
})

/** Every command, by the words of its name. */
function commandsBelow(command: Command, words: readonly string[] = []): string[] {
  if (command.commands.length === 0) return [words.join(' ')]
  return command.commands.flatMap((child) => commandsBelow(child, [...words, child.name()]))
}

describe('commands', () => {
  const commands = commandsBelow(createProgram())
  const serve = createProgram().commands.find((command) => command.name() === 'serve')
  const modes = serve?.registeredArguments[0]?.argChoices ?? []

  test.each(units)('deploy/%s runs the program in one of its modes', (file) => {
    const [, mode] = /^ExecStart=\/\S+\/bin\/survey-auth\.js serve (\w+)$/m.exec(textOf(file)) ?? []
    expect(modes).toContain(mode)
    expect(textOf(file)).toMatch(/^EnvironmentFile=\/etc\/survey-auth\/survey-auth\.env$/m)
  })

  test('every mode has a unit', () => {
    const run = units.map((file) => /serve (\w+)$/m.exec(textOf(file))?.[1])
    expect(run.sort()).toEqual([...modes].sort())
  })

  test('compose.yaml and the Dockerfile run the program in its modes', () => {
    const { services } = parse(textOf('docker/compose.yaml'), { merge: true }) as {
      services: Record<string, { image: string; command?: [string, string] }>
    }
    const run = Object.values(services).filter(({ image }) => image === 'survey-auth')
    expect(new Set(run.map(({ command }) => command?.[1]))).toEqual(new Set(['token', 'survey', 'gateway']))
    for (const { command } of run) expect([command?.[0], modes.includes(command?.[1] ?? '')]).toEqual(['serve', true])
    const options = SERVER_FLAGS.map((option) => `"${option}"`)
    expect(textOf('docker/Dockerfile')).toContain(
      `ENTRYPOINT ["node", ${options.join(', ')}, "/opt/survey-auth/bin/survey-auth.js"]\nCMD ["serve", "all"]\n`,
    )
  })

  test('the bases of the image are named by digest', () => {
    const bases = [...textOf('docker/Dockerfile').matchAll(/^ARG \w+_IMAGE=(.+)$/gm)].map(([, base]) => base)
    expect(bases).toEqual(Array(2).fill(expect.stringMatching(/^[\w./-]+:[\w.-]+@sha256:[0-9a-f]{64}$/)))
  })

  test('npm runs the command file itself, as the image and the units do, so that its options for Node apply', () => {
    const { scripts } = JSON.parse(readFileSync(path.join(ROOT, 'package.json'), 'utf8')) as {
      scripts: Record<string, string>
    }
    for (const name of ['start', 'demo']) expect(scripts[name]).toMatch(/^exec sh bin\/survey-auth\.js /)
  })

  test('survey-auth commands in comments exist', () => {
    const said = files.flatMap((file) => [...textOf(file).matchAll(/survey-auth(?:\.js)? ((?:[a-z]+ ?)+)/g)])
    const typed = said
      .map(([, words = '']) => words.trim())
      .filter((words) => /^(serve|app|user|config|doctor|audit)\b/.test(words))
    expect(typed.length).toBeGreaterThan(0)
    for (const words of typed)
      expect(
        commands.some((command) => words.startsWith(command)),
        words,
      ).toBe(true)
  })
})

/** How a proxy matches paths, and whether it retries such requests. */
interface Rule {
  readonly path: string
  readonly isPrefix: boolean
  readonly isRetried: boolean
}

function nginxRules(text: string): Rule[] {
  const [server = ''] = text.split(/^server \{\n\s+listen 80;/m)
  return [...withoutComments(server).matchAll(/location (= )?(\/\S*) \{(?!\s+internal;)([^}]*)\}/g)].map(
    ([, exact, path = '', body = '']) => ({
      path,
      isPrefix: exact === undefined,
      isRetried: /proxy_next_upstream (?!off)/.test(body),
    }),
  )
}

interface EnvoyRoute {
  readonly match: { readonly path?: string; readonly prefix?: string }
  readonly route: { readonly retry_policy: { readonly retry_on: string } }
}

function envoyRules(text: string): Rule[] {
  const rules: Rule[] = []
  const visit = (node: unknown): void => {
    if (typeof node !== 'object' || node === null) return
    if ('match' in node) {
      const { match, route } = node as EnvoyRoute
      const path = match.path ?? match.prefix ?? ''
      const isRetried = route.retry_policy.retry_on !== 'connect-failure' // which no gateway has seen
      rules.push({ path, isPrefix: match.path === undefined, isRetried })
    } else Object.values(node).forEach(visit)
  }
  visit(parse(text))
  return rules
}

const proxies = [
  ['nginx', nginxRules(textOf('nginx/survey-auth.conf'))],
  ['Envoy', envoyRules(textOf('envoy/envoy.yaml'))],
] as const

/** The rule for a route: the exact one, else the longest prefix, as both proxies choose with the order of their files. */
function ruleFor(rules: readonly Rule[], { path }: Route): Rule | undefined {
  const exact = rules.find((rule) => !rule.isPrefix && rule.path === path)
  const prefixes = rules.filter((rule) => rule.isPrefix && path.startsWith(rule.path))
  return exact ?? prefixes.sort((a, b) => b.path.length - a.path.length)[0]
}

describe.each(proxies)('routes of %s', (name, rules) => {
  test('are routes of the gateway, or prefixes of them', () => {
    expect(rules.length).toBeGreaterThan(3)
    for (const { path, isPrefix } of rules) {
      const isServed = routes.some((route) => (isPrefix ? route.path.startsWith(path) : route.path === path))
      expect({ path, isServed }).toEqual({ path, isServed: true })
    }
  })

  test('retry only reads', () => {
    const reads = ['user', 'survey', 'surveys', 'answer', 'answers']
    const retried = routes.filter((route) => route.kind === 'api' && ruleFor(rules, route)?.isRetried)
    expect(new Set(retried.map((route) => route.name))).toEqual(new Set(reads))
    const pages = routes.filter((route) => route.kind === 'page' && route.method === 'POST')
    if (name === 'Envoy') expect(pages.filter((route) => ruleFor(rules, route)?.isRetried)).toEqual([])
    else expect(textOf('nginx/survey-auth.conf')).not.toContain('non_idempotent') // or nginx would retry a POST
  })

  test('cover every route', () => {
    expect(routes.filter((route) => ruleFor(rules, route) === undefined)).toEqual([])
  })
})

describe('logs of proxies', () => {
  test('drop the traceparent of their clients, which the gateways would believe', () => {
    expect(withoutComments(textOf('nginx/survey-auth.conf'))).toMatch(/proxy_set_header +traceparent +"";/)
    expect(withoutComments(textOf('envoy/envoy.yaml'))).toContain('request_headers_to_remove: [traceparent]')
  })

  test('nginx logs nothing that holds a query', () => {
    const text = withoutComments(textOf('nginx/survey-auth.conf'))
    const [format = ''] = /log_format[^;]*;/.exec(text) ?? []
    expect(format).not.toMatch(/\$(request\b|request_uri|args|arg_|query_string|http_|cookie_|is_args)/)
    const logs = [...text.matchAll(/access_log (\S+?)(?: (\S+))?;/g)].map(([, file, name]) =>
      file === 'off' ? 'off' : name,
    )
    expect(new Set(logs)).toEqual(new Set(['survey_auth', 'off']))
    expect([...text.matchAll(/error_log +\S+ +(\w+);/g)].map(([, level]) => level)).toEqual(['crit', 'crit'])
  })

  test('HAProxy logs nothing that holds a query', () => {
    const [, format = ''] = /log-format "(.*)"/.exec(textOf('haproxy/haproxy.cfg')) ?? []
    expect(format).toContain('%HPO')
    expect(format).not.toMatch(/%(r|HU|HQ|HP|hr|hrl|hs|hsl)\b|%\[/)
    expect(textOf('haproxy/haproxy.cfg')).not.toMatch(/option httplog|http-request capture|capture request/)
  })

  test('Envoy logs neither path nor headers', () => {
    const operators = [...textOf('envoy/envoy.yaml').matchAll(/%([A-Z_]+(?:\(.*?\))?)%/g)].map(([, word]) => word)
    expect(operators).toContain('ROUTE_NAME')
    expect(operators.filter((word) => /\(/.test(word ?? ''))).toEqual(['REQ(:METHOD)', 'REQ(X-REQUEST-ID)'])
  })
})

describe('syntax', () => {
  test.each(files.filter((file) => file.endsWith('.yaml')))('deploy/%s is YAML', (file) => {
    const documents = parseAllDocuments(textOf(file), { merge: true, strict: true })
    expect(documents.length).toBeGreaterThan(0)
    for (const document of documents) expect([document.errors, typeof document.toJS()]).toEqual([[], 'object'])
  })

  test('compose.yaml refers only to what it declares', () => {
    type Service = { secrets?: string[]; volumes?: string[]; networks?: object; depends_on?: object }
    type Named = Record<string, unknown>
    const document = parse(textOf('docker/compose.yaml'), { merge: true })
    const { services, ...declared } = document as {
      services: Record<string, Service>
      secrets: Named
      volumes: Named
      networks: Named
    }
    const keys = (value: object = {}): string[] => (Array.isArray(value) ? value : Object.keys(value))
    for (const service of Object.values(services)) {
      const volumes = keys(service.volumes).map((volume) => volume.split(':', 1)[0] ?? '')
      expect(Object.keys(declared.secrets)).toEqual(expect.arrayContaining(keys(service.secrets)))
      expect(Object.keys(declared.volumes)).toEqual(
        expect.arrayContaining(volumes.filter((name) => !name.startsWith('.'))),
      )
      expect(Object.keys(declared.networks)).toEqual(expect.arrayContaining(keys(service.networks)))
      expect(Object.keys(services)).toEqual(expect.arrayContaining(keys(service.depends_on)))
    }
  })

  test('what the image copies is in its build context', () => {
    const kept = readFileSync(path.join(ROOT, '.dockerignore'), 'utf8').match(/(?<=^!).+$/gm) ?? []
    for (const name of kept) expect(readdirSync(ROOT)).toContain(name)
    const built = ['node_modules', 'dist']
    const copied = [...textOf('docker/Dockerfile').matchAll(/\/build\/([\w.-]+)/g)].map(([, name = '']) => name)
    expect([...kept, ...built]).toEqual(expect.arrayContaining(copied))
  })

  test('the image holds everything that the service needs', async () => {
    execFileSync(process.execPath, [BUILD], { stdio: 'inherit' })
    const image = temporaryDirectory()
    const copies = textOf('docker/Dockerfile').matchAll(/^COPY --from=build (.+) (\S+)$/gm)
    for (const [, from = '', to = ''] of copies) {
      if (!from.startsWith('/build/')) continue // Node, which is here
      for (const source of from.split(' ')) {
        const name = source.replace('/build/', '')
        const target = path.join(image, to.endsWith('/') ? path.join(to, path.basename(name)) : to)
        if (name === 'node_modules') symlinkSync(path.join(ROOT, name), target)
        else cpSync(path.join(ROOT, name), target, { recursive: true })
      }
    }
    const adminPort = await freePort()
    const PATH = `${path.dirname(process.execPath)}:${process.env.PATH}`
    const env = { PATH, DATA_DIR: path.join(image, 'data'), PORT: '0', ADMIN_PORT: String(adminPort) }
    const child = spawn(path.join(image, 'bin/survey-auth.js'), ['serve'], { env, stdio: 'ignore' })
    onTestFinished(() => void child.kill('SIGKILL'))
    const ready = () => fetch(`http://127.0.0.1:${adminPort}/readyz`).then(({ status }) => status, String)
    await expect.poll(ready, { timeout: 30_000 }).toBe(200)
  })

  test('units never deny V8 what it needs, and never restart on a wrong configuration', () => {
    for (const unit of units) {
      expect(textOf(unit)).not.toMatch(/^MemoryDenyWriteExecute=/m)
      expect(textOf(unit)).toMatch(/^RestartPreventExitStatus=2 78$/m)
    }
  })

  const hasSystemd = spawnSync('systemd-analyze', ['--version']).status === 0
  if (hasSystemd) {
    test('systemd accepts the units', () => {
      const folder = temporaryDirectory()
      const names = files.filter((file) => /\.(service|target)$/.test(file)).map((file) => path.basename(file))
      for (const name of names) {
        const text = textOf(`systemd/${name}`).replaceAll('/opt/survey-auth/', ROOT)
        writeFileSync(path.join(folder, name), text)
      }
      const started = names.map((name) => path.join(folder, name.replace('@.', '@8080.')))
      writeFileSync(
        path.join(folder, 'survey-auth-gateway@8080.service'),
        readFileSync(path.join(folder, 'survey-auth-gateway@.service')),
      )
      const env = { ...process.env, SYSTEMD_UNIT_PATH: `${folder}:` }
      expect(execFileSync('systemd-analyze', ['verify', ...started], { env, encoding: 'utf8', stdio: 'pipe' })).toBe('')
    })
  }
})
