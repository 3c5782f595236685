import type { Code } from '@connectrpc/connect'

/** What is wrong with an answer, or that there is none because the provider was not asked. */
export const PROVIDER_FAULTS = ['malformed', 'ownership_violation', 'not_asked'] as const
export type ProviderFault = (typeof PROVIDER_FAULTS)[number]

/** A provider that did not answer, or not as it must. The message is for operators: it may hold words of the provider. */
export class ProviderFailure extends Error {
  override readonly name = 'ProviderFailure'

  constructor(
    /** The code with which the call ended, unless it is a fault. */
    readonly outcome: Code | ProviderFault,
    message: string,
  ) {
    super(message)
  }
}
