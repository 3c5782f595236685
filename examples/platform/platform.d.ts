export interface RpcOptions {
  /** As RPC_LISTEN has them: unix:/path, https://host:port or http://127.0.0.1:port. */
  readonly url: string
  /** PEM files, for https. */
  readonly ca?: string | undefined
  readonly cert?: string | undefined
  readonly key?: string | undefined
}

/** The platform's users, by name. */
export const USERS: Readonly<
  Record<'ming' | 'lan', { readonly externalId: string; readonly nickname: string; readonly password: string }>
>

/** `port`: 0 takes a free one. */
export function startPlatform(options: {
  readonly rpc: RpcOptions
  readonly port: number
}): Promise<{ url: string; close: () => Promise<void> }>
