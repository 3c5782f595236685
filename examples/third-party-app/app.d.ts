export interface ThirdPartyAppOptions {
  /** Address of the authorization service. */
  readonly baseUrl: string
  readonly appid: string
  readonly secret: string
  /** 0 takes a free one; `http://127.0.0.1:PORT/callback` must be registered for the app. */
  readonly port: number
}

export function startThirdPartyApp(options: ThirdPartyAppOptions): Promise<{ url: string; close: () => Promise<void> }>
