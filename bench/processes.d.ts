/** The options with which the command starts Node. */
export const SERVER_FLAGS: readonly string[]
