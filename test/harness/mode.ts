/** How the processes of a service are arranged; the vitest project decides, and the suites run unchanged in each. */
const MODES = ['all-in-one', 'separate', 'two-of-each'] as const
export type Mode = (typeof MODES)[number]

/** SURVEY_AUTH_TEST_MODE, else all-in-one. */
export const mode: Mode = MODES.find((known) => known === process.env.SURVEY_AUTH_TEST_MODE) ?? 'all-in-one'
