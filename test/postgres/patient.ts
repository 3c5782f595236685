/** For tests about order rather than time: a slow machine must not look like an unavailable database. */
export const patient = { connectTimeoutMs: 60_000, statementTimeoutMs: 60_000, lockTimeoutMs: 60_000 } as const
