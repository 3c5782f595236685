// The demo in which users sign in at a platform of their own: the example platform, joined to the service as a real one is.
import { randomBytes } from 'node:crypto'
import { pathToFileURL } from 'node:url'
import { AccountService } from '../../gen/surveyauth/v1/account_service_pb.js'
import { AdminService } from '../../gen/surveyauth/v1/admin_service_pb.js'
import { SignInService } from '../../gen/surveyauth/v1/sign_in_service_pb.js'
import { type HeldPort, letGo, type PortVariable } from '../compose/listen.js'
import type { Running } from '../compose/running.js'
import type { Environment } from '../config.js'
import { CommandError, EXIT } from '../exit.js'
import { packageFile } from '../package-root.js'
import type { SignIn } from './authorize.js'
import { DEMO_USER } from './known-account.js'

const DEFAULT_PLATFORM_PORT = 8070

/** The platform's user who is the demo user here, and one who is nobody here until they sign in. */
export interface ShownPlatform {
  readonly url: string
  readonly rpcAddress: string
  readonly known: PlatformUser
  readonly stranger: PlatformUser
}

export interface PlatformUser {
  readonly name: string
  readonly password: string
  readonly externalId: string
  readonly nickname: string
}

export interface Platform {
  readonly shown: ShownPlatform
  readonly signIn: SignIn
  close(): Promise<void>
}

/** A platform that does not run yet, whose address the service must know before. */
export interface Handoff {
  environment(env: Environment): Environment
  start(running: Running): Promise<Platform>
}

interface Example {
  readonly USERS: Readonly<Record<'ming' | 'lan', Omit<PlatformUser, 'name'>>>
  startPlatform(options: { rpc: { url: string }; port: number }): Promise<{ url: string; close(): Promise<void> }>
}

export async function holdHandoff(
  holdFree: (host: string, usual: number, variable: PortVariable) => Promise<HeldPort>,
): Promise<Handoff> {
  const { USERS, startPlatform } = await loadExample()
  const known = { name: 'ming', ...USERS.ming }
  const stranger = { name: 'lan', ...USERS.lan }
  const port = await holdFree('127.0.0.1', DEFAULT_PLATFORM_PORT, 'PORT')
  port.socket.unref() // if the start fails
  return {
    environment: ({ RPC_LISTEN = 'socket' }) => ({ RPC_LISTEN, SIGN_IN_URL: `http://127.0.0.1:${port.port}/sign-in` }),
    async start(running) {
      const { rpcAddress } = running
      if (!rpcAddress) throw new CommandError('RPC_LISTEN is off: the platform could say nothing', EXIT.configuration)
      const { username } = DEMO_USER
      await running.client(AdminService, 'operator').updateUser({ username, newExternalId: known.externalId })
      await letGo(port)
      const { url, close } = await startPlatform({ rpc: { url: rpcAddress }, port: port.port })
      return { shown: { url, rpcAddress, known, stranger }, signIn: signInAs(known), close }
    },
  }
}

/** Plain JavaScript outside the build. */
async function loadExample(): Promise<Example> {
  return (await import(pathToFileURL(packageFile('examples/platform/platform.js')).href)) as Example
}

/** As gateway and platform do between them. */
function signInAs({ externalId, nickname }: PlatformUser): SignIn {
  return async (running) => {
    const account = running.client(AccountService, 'gateway')
    const browserKey = randomBytes(32).toString('base64url')
    const uri = running.url
    const begun = await account.beginSignIn({ browserKey, returnUri: uri, restartUri: uri, language: 'en' })
    const signInChallenge = new URL(begun.redirectTo).searchParams.get('sign_in_challenge') ?? ''
    const platform = running.client(SignInService, 'sign_in')
    const { redirectTo } = await platform.acceptSignIn({ signInChallenge, externalId, nickname })
    const verifier = new URL(redirectTo).searchParams.get('verifier') ?? ''
    return (await account.completeSignIn({ verifier, browserKey })).sessionToken
  }
}
