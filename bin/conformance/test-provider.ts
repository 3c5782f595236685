// The kit for providers of surveys: what it is given, what it runs, what it writes.
import { writeFileSync } from 'node:fs'
import type { GetProviderInfoResponse } from '../../gen/surveyauth/provider/v1/survey_provider_pb.js'
import { type Address, formatAddress } from '../../services/rpc/address.js'
import { causeOf } from '../../services/rpc/connection.js'
import type { Json } from '../commands/command.js'
import { readFileOrInput } from '../commands/input.js'
import { readTls } from '../compose/tls.js'
import { readConfig } from '../config.js'
import { isOfSystem, unwritable } from '../error-code.js'
import { CommandError, EXIT } from '../exit.js'
import { harmlessLines, printJson } from '../output.js'
import { type Fixtures, parseFixtures, unusable } from './fixtures.js'
import { Connection, codeName } from './probe.js'
import {
  KIT_VERSION,
  outcomeInWords,
  type Report,
  reportObject,
  toJUnit,
  toYaml,
  verdictInWords,
  verdictOn,
} from './report.js'
import {
  askInfo,
  claimedBy,
  PROFILES,
  type Profile,
  type ProfileResult,
  REPEATS,
  runProfile,
  testsOf,
} from './run-kit.js'

const MAX_FIXTURES_BYTES = 1024 * 1024
const TEST_IDS = PROFILES.flatMap((profile) => testsOf[profile]).map(({ id }) => id)

/** As the command line has them. */
export interface KitOptions extends Json {
  readonly url: Address
  /** A file; `-` is standard input. */
  readonly fixtures: string
  /** Names of profiles. */
  readonly profile?: readonly string[]
  /** Ids of tests. */
  readonly only?: readonly string[]
  /** Files to write. */
  readonly report?: string
  readonly junit?: string
}

/** @throws CommandError with exit code 2 when the provider cannot be tested */
export async function testProvider(options: KitOptions): Promise<void> {
  checkNames(options.profile, PROFILES, '--profile')
  checkNames(options.only, TEST_IDS, '--only')
  const fixtures = parseFixtures(options.fixtures, await readFixtures(options.fixtures))
  const { url } = options
  const tls = url.kind === 'tls' ? readTls(readConfig(process.env)) : undefined
  const connection = new Connection(url, tls)
  try {
    const info = await preflight(connection, formatAddress(url))
    const report = await runAll(connection, info, fixtures, options)
    if (options.json) printJson(reportObject(report))
    if (options.report !== undefined) write(options.report, toYaml(report))
    if (options.junit !== undefined) write(options.junit, toJUnit(report))
    process.exitCode = report.verdict === 'not conformant' ? EXIT.failure : EXIT.ok
  } finally {
    connection.close()
  }
}

async function runAll(
  connection: Connection,
  { name, version, capabilities }: GetProviderInfoResponse,
  fixtures: Fixtures,
  { json, url, profile: demanded, only, fixtures: file }: KitOptions,
): Promise<Report> {
  const claimed = claimedBy(capabilities)
  const isDemanded = (profile: Profile) => demanded?.includes(profile) ?? true
  if (claimed.includes('answers') && isDemanded('answers') && !fixtures.answers) {
    throw unusable(file, 'answers: is needed, because the provider claims them')
  }
  const say = (text: string) => {
    if (!json) process.stdout.write(`${harmlessLines(text)}\n`)
  }
  say(`survey-auth provider kit ${KIT_VERSION} · ${name} ${version} · claims: ${claimed.join(', ')}`)
  const results: ProfileResult[] = []
  for (const profile of PROFILES) {
    say(claimed.includes(profile) ? profile : `${profile}: not claimed`)
    results.push(
      await runProfile(profile, {
        connection,
        fixtures,
        claimed,
        isChosen: (of, { id }) => isDemanded(of) && (only?.includes(id) ?? true),
        repeats: REPEATS,
        onOutcome: (outcome) => say(outcomeInWords(outcome)),
      }),
    )
  }
  const verdict = verdictOn(results, demanded ?? [])
  say(verdictInWords(results, verdict))
  return { date: new Date(), implementation: { name, version, url: formatAddress(url) }, results, verdict }
}

/** Asked before any test, so that an address at which there is no provider is one message. @throws CommandError */
async function preflight(connection: Connection, url: string): Promise<GetProviderInfoResponse> {
  const { response, code, message } = await askInfo(connection)
  if (response) return response
  const cause = causeOf(message).replace(/\s+/g, ' ')
  throw new CommandError(`no provider answers at ${url}: ${codeName(code)} ${cause}`, EXIT.usage)
}

function checkNames(given: readonly string[] | undefined, known: readonly string[], option: string): void {
  const unknown = given?.find((name) => !known.includes(name))
  if (unknown !== undefined) throw new CommandError(`${option} ${unknown} is none of ${known.join(', ')}`, EXIT.usage)
}

/** A file that cannot be read is no verdict on the provider. */
async function readFixtures(file: string): Promise<string> {
  try {
    return await readFileOrInput(file, MAX_FIXTURES_BYTES)
  } catch (error) {
    throw error instanceof CommandError ? new CommandError(error.message, EXIT.usage) : error
  }
}

function write(file: string, text: string): void {
  try {
    writeFileSync(file, text)
  } catch (error) {
    throw isOfSystem(error) ? new CommandError(unwritable(file, error), EXIT.usage) : error
  }
}
