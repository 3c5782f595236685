/** `all` is everything in one process; each other mode is one process of a separated service. */
export const MODES = ['all', 'gateway', 'token', 'survey'] as const
export type Mode = (typeof MODES)[number]
