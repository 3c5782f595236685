/** How the processes of a service are arranged; the vitest project decides, and the suites run unchanged in each. */
const MODES = ['all-in-one', 'separate', 'two-of-each'] as const
export type Mode = (typeof MODES)[number]

/** SURVEY_AUTH_TEST_MODE, all-in-one if that is not set. */
export const mode = modeNamed(process.env.SURVEY_AUTH_TEST_MODE ?? 'all-in-one')

function modeNamed(name: string): Mode {
  const mode = MODES.find((known) => known === name)
  if (!mode) throw new Error(`SURVEY_AUTH_TEST_MODE is ${name}, and not one of ${MODES.join(', ')}`)
  return mode
}
