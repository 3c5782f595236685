// What a form has just done, or why it did nothing, said once by the page that its answer leads to. It travels in a cookie: a link
// cannot claim it, a reload does not repeat it, and that page is at an address of its own, where a reload sends no form again.

/** What the sign-in page says, by the name of its text; `typed` says nothing. */
const OF_SIGN_IN = [
  'typed',
  'failed',
  'incomplete',
  'formReplaced',
  'formExpired',
  'sessionEnded',
  'signedOut',
  'signOutDone',
  'signOutDoneHere',
] as const
/** What the account page says. */
const OF_ACCOUNT = [
  'passwordChanged',
  'passwordWrong',
  'passwordUnfit',
  'sessionsEnded',
  'linked',
  'linkRefused',
  'unlinked',
  'unlinkRefused',
  'tooManyAttempts',
] as const
const ALL = [...OF_SIGN_IN, ...OF_ACCOUNT, 'disconnected'] as const

export interface Notice {
  readonly about: (typeof ALL)[number]
  /**
   * What was typed as the username, which the form keeps; the name of the app whose access has ended; where somebody may still be
   * signed in; or how many seconds to wait.
   */
  readonly detail: string
}

export type SignInNotice = Notice & { readonly about: (typeof OF_SIGN_IN)[number] }

export type AccountNotice = Notice & { readonly about: (typeof OF_ACCOUNT)[number] }

export function isOfAccount(notice: Notice | undefined): notice is AccountNotice {
  return OF_ACCOUNT.some((about) => about === notice?.about)
}

export function isOfSignIn(notice: Notice | undefined): notice is SignInNotice {
  return OF_SIGN_IN.some((about) => about === notice?.about)
}

/** The value of the cookie. */
export function writeNotice({ about, detail }: Notice): string {
  return `${about}.${Buffer.from(detail).toString('base64url')}`
}

/** Undefined for what writeNotice() did not write. */
export function readNotice(value: string | undefined): Notice | undefined {
  const [said, detail = ''] = value?.split('.') ?? []
  const about = ALL.find((one) => one === said)
  return about && { about, detail: Buffer.from(detail, 'base64url').toString() }
}
