// Runs the tests of the kit: each several times in turn, so that a call must change nothing, then many times at once.
import { ProviderCapability, SurveyProvider } from '../../gen/surveyauth/provider/v1/survey_provider_pb.js'
import { answersTests } from './answers-tests.js'
import { Wrong } from './check.js'
import { coreTests } from './core-tests.js'
import type { Fixtures } from './fixtures.js'
import type { KitTest } from './kit-test.js'
import { type Connection, type Exchange, Probe } from './probe.js'

export const PROFILES = ['core', 'answers'] as const
export type Profile = (typeof PROFILES)[number]

export const testsOf: Readonly<Record<Profile, readonly KitTest[]>> = { core: coreTests, answers: answersTests }

/** The profiles of a provider with these capabilities. */
export function claimedBy(capabilities: readonly ProviderCapability[]): Profile[] {
  return capabilities.includes(ProviderCapability.ANSWERS) ? ['core', 'answers'] : ['core']
}

/** How often each test runs. */
export interface Repeats {
  readonly inTurn: number
  readonly atOnce: number
}

export const REPEATS: Repeats = { inTurn: 10, atOnce: 20 }

interface Failure {
  /** What is wrong, and in which run. */
  readonly what: string
  /** The call that showed it. */
  readonly exchange: Exchange | undefined
}

export interface Outcome {
  readonly test: KitTest
  /** undefined for a test that passed. */
  readonly failure: Failure | undefined
  /** Of each call, ascending. */
  readonly callMs: readonly number[]
}

export interface ProfileResult {
  readonly profile: Profile
  readonly isClaimed: boolean
  readonly outcomes: readonly Outcome[]
  /** Not run: not chosen, not claimed, or after one at which the provider ceased to answer. */
  readonly skipped: readonly KitTest[]
}

export interface KitRun {
  readonly connection: Connection
  readonly fixtures: Fixtures
  readonly claimed: readonly Profile[]
  readonly isChosen: (profile: Profile, test: KitTest) => boolean
  readonly repeats: Repeats
  /** Told as they come. */
  readonly onOutcome: (outcome: Outcome) => void
}

/** @throws what is a defect of the kit */
export async function runProfile(profile: Profile, run: KitRun): Promise<ProfileResult> {
  const isClaimed = run.claimed.includes(profile)
  const outcomes: Outcome[] = []
  for (const test of testsOf[profile].filter((one) => isClaimed && run.isChosen(profile, one))) {
    const outcome = await runTest(test, run)
    run.onOutcome(outcome)
    outcomes.push(outcome)
    if (outcome.failure && !(await askInfo(run.connection)).response) break // the others would only repeat it
  }
  const ran = outcomes.map(({ test }) => test)
  return { profile, isClaimed, outcomes, skipped: testsOf[profile].filter((test) => !ran.includes(test)) }
}

export function askInfo(connection: Connection): Promise<Exchange<typeof SurveyProvider.method.getProviderInfo>> {
  return new Probe(connection, () => undefined).call(SurveyProvider.method.getProviderInfo, {})
}

async function runTest(test: KitTest, { connection, fixtures, repeats: { inTurn, atOnce } }: KitRun): Promise<Outcome> {
  const callMs: number[] = []
  const runOnce = async (when: string): Promise<Failure | undefined> => {
    const probe = new Probe(connection, (ms) => callMs.push(ms))
    try {
      await test.run(probe, fixtures)
      return undefined
    } catch (error) {
      if (error instanceof Wrong) return { what: `${error.message} (${when})`, exchange: probe.last }
      throw error
    }
  }
  let failure: Failure | undefined
  for (let n = 1; n <= inTurn && !failure; n += 1) failure = await runOnce(`run ${n} of ${inTurn}`)
  if (!failure) {
    const runs = Array.from({ length: atOnce }, () => runOnce(`${atOnce} runs at once`))
    failure = (await Promise.all(runs)).find((one) => one !== undefined)
  }
  return { test, failure, callMs: callMs.sort((a, b) => a - b) }
}
