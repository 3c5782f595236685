/** An operator's call by Connect, through the socket of a service. @throws Error when the answer is not 200 */
export function callRpc<T = Record<string, unknown>>(socketPath: string, method: string, message: object): Promise<T>
