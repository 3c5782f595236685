// survey-auth demo: the whole service with a user, apps, surveys and an example third-party app, on this machine only.
import path from 'node:path'
import { pathToFileURL } from 'node:url'
import { type Command, Option } from 'commander'
import { AdminService } from '../../gen/surveyauth/v1/admin_service_pb.js'
import { SurveyService } from '../../gen/surveyauth/v1/survey_service_pb.js'
import { type HeldPort, holdPort, letGo, type PortVariable } from '../compose/listen.js'
import type { SurveyOperator } from '../compose/operator.js'
import type { Running } from '../compose/running.js'
import { type Config, type Environment, readConfig } from '../config.js'
import { authorize, byPassword } from '../demo/authorize.js'
import { guide } from '../demo/guide.js'
import { type Handoff, holdHandoff } from '../demo/handoff.js'
import { whyNoDemo } from '../demo/known-account.js'
import { CommandError, EXIT } from '../exit.js'
import { message } from '../output.js'
import { packageFile } from '../package-root.js'
import { untilToldToStop } from '../signals.js'
import { group } from './command.js'

const DEFAULT_PORT = 8080
const DEFAULT_ADMIN_PORT = 9100
const DEFAULT_APP_PORT = 8090

/** How often a port that was free may be taken before this process takes it. */
const MOST_TRIES = 5

/** Variables that the demo does not read: its data and its address are its own. */
const ITS_OWN = [
  'PUBLIC_URL',
  'TOKEN_DATABASE_URL',
  'TOKEN_DATABASE_URL_FILE',
  'SURVEY_DATABASE_URL',
  'SURVEY_DATABASE_URL_FILE',
  'SURVEY_PROVIDER_URL',
] as const

type StartExample = (options: { baseUrl: string; appid: string; secret: string; port: number }) => Promise<{
  readonly url: string
  close(): Promise<void>
}>

export function addDemoCommand(program: Command): void {
  group(program, 'demo', {
    about: 'try everything: service, user, apps, surveys and an example third-party app; data in DATA_DIR/demo',
    examples: ['demo', 'demo --sign-in handoff', 'demo   # HOST and PORT are honoured; HOST must be loopback'],
  })
    .addOption(
      new Option(
        '--sign-in <way>',
        'handoff: users sign in at an example platform, to which the service hands over',
      ).choices(['handoff']),
    )
    .action(demo)
}

async function demo({ signIn }: { readonly signIn?: 'handoff' }): Promise<void> {
  const whyNot = whyNoDemo(process.env)
  if (whyNot) {
    const text = `the demo has an account whose password is public, and ${whyNot}`
    throw new CommandError(text, EXIT.configuration, 'survey-auth serve has none; for the demo unset the variable')
  }
  const ignored = ITS_OWN.filter((variable) => process.env[variable])
  if (ignored.length > 0) message(`no effect on the demo, which has its own: ${ignored.join(', ')}`)
  const startExample = await loadExample()
  const appPort = await holdFree('127.0.0.1', DEFAULT_APP_PORT, 'PORT')
  appPort.socket.unref() // if the start fails
  const redirectUri = `http://127.0.0.1:${appPort.port}/callback`
  const handoff = signIn && (await holdHandoff(holdFree))
  const { config, running } = await startOnFreePorts(handoff)
  try {
    const { seed } = await import('../demo/seed.js') // loads zod: only here
    const seeded = await seed(clientsOf(running), redirectUri)
    const platform = await handoff?.start(running)
    const credentials = await authorize(running, seeded.pasted, redirectUri, platform?.signIn ?? byPassword)
    await letGo(appPort)
    const example = await startExample({ baseUrl: running.url, ...seeded.clicked, port: appPort.port })
    const { codeTtlSeconds, dataDir } = config
    const place = { url: running.url, appUrl: example.url, redirectUri, platform: platform?.shown }
    const text = { ...place, seeded, credentials, codeTtlSeconds, dataDir }
    const told = untilToldToStop() // before anybody can read how to end it
    process.stdout.write(guide(text, { isColored: process.stdout.isTTY === true && !process.env.NO_COLOR }))
    await told
    await example.close()
    await platform?.close()
  } finally {
    await running.close()
  }
}

/** The example is plain JavaScript outside the build, so it is loaded from where it stands. */
async function loadExample(): Promise<StartExample> {
  const file = pathToFileURL(packageFile('examples/third-party-app/app.js'))
  const { startThirdPartyApp } = (await import(file.href)) as { startThirdPartyApp: StartExample }
  return startThirdPartyApp
}

function clientsOf({ client }: Running): SurveyOperator {
  return { admin: client(AdminService, 'operator'), survey: client(SurveyService, 'operator') }
}

/** Looks for free ports again when another program was faster in taking them. */
async function startOnFreePorts(
  handoff: Handoff | undefined,
): Promise<{ readonly config: Config; readonly running: Running }> {
  const { start } = await import('../compose/start.js') // heavy: only here
  for (let tries = 1; ; tries += 1) {
    const config = readConfig(await demoEnvironment({ ...process.env, ...handoff?.environment(process.env) }))
    try {
      return { config, running: await start('all', config) }
    } catch (error) {
      const mayBeTaken = error instanceof CommandError && error.exitCode === EXIT.unavailable
      if (!mayBeTaken || tries === MOST_TRIES) throw error
    }
  }
}

/**
 * The environment with what differs in a demo: data of its own, however DATA_DIR is set; free ports, except where one is asked
 * for; no RPC door, so that two demos can run on one folder; a quiet log.
 */
async function demoEnvironment(env: Environment): Promise<Environment> {
  const host = env.HOST || '127.0.0.1'
  return {
    RPC_LISTEN: 'off',
    LOG_LEVEL: 'warn',
    ...env,
    DATA_DIR: path.join(env.DATA_DIR || 'data', 'demo'),
    ...Object.fromEntries(ITS_OWN.map((variable) => [variable, undefined])),
    PORT: env.PORT || (await portFor(host, DEFAULT_PORT, 'PORT')),
    ADMIN_PORT: env.ADMIN_PORT || (await portFor(env.ADMIN_HOST || '127.0.0.1', DEFAULT_ADMIN_PORT, 'ADMIN_PORT')),
  }
}

/** The usual port if it is free, else any; free when this looked. */
async function portFor(host: string, usual: number, variable: PortVariable): Promise<string> {
  const held = await holdFree(host, usual, variable)
  await letGo(held)
  return String(held.port)
}

/** The same, held: it stays free. @throws CommandError when nothing can listen on this address */
async function holdFree(host: string, usual: number, variable: PortVariable): Promise<HeldPort> {
  try {
    return await holdPort(host, usual, variable)
  } catch (error) {
    if (!(error instanceof CommandError) || error.exitCode !== EXIT.unavailable) throw error
    const held = await holdPort(host, 0, variable)
    message(`port ${usual} is in use; taking ${held.port}`)
    return held
  }
}
