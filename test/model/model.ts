// The specification as a program: what every call must answer and what it changes, over plain data. It knows nothing of
// the product. Numbers in brackets are rows of docs/decisions.md.

/** Lifetimes in ms and caps of the service it is compared with. */
export interface Rules {
  readonly codeMs: number
  readonly accessTokenMs: number
  readonly refreshTokenMs: number
  readonly overlapMs: number
  readonly graceMs: number
  readonly maxCodes: number
  readonly maxGrants: number
}

export interface ModelSecret {
  readonly id: string
  readonly text: string
  readonly expiresAtMs: number
  isRevoked: boolean
}

export interface ModelApp {
  readonly appid: string
  readonly redirectUris: readonly string[]
  readonly requiresSecretOnRefresh: boolean
  readonly secrets: ModelSecret[]
  readsAnswers: boolean
  isDisabled: boolean
}

export interface ModelUser {
  readonly username: string
  readonly password: string
  nickname: string
  /** The last sign-in; undefined when there was none or it was ended. */
  session: string | undefined
  signedInAtMs: number
  isDisabled: boolean
}

/** An authorization form a user confirmed. */
export interface ModelForm {
  readonly id: string
  readonly session: string
  /** Whether it asks for answers, as its app did when it was shown. */
  readonly readsAnswers: boolean
}

export interface ModelCode {
  readonly app: ModelApp
  readonly user: ModelUser
  readonly redirectUri: string
  /** Whose challenge came with the authorization; undefined if none did. */
  readonly verifier: string | undefined
  readonly form: ModelForm
  readonly issuedAtMs: number
  readonly expiresAtMs: number
  /** The service's name for it; empty until known. */
  text: string
  state: 'unused' | 'used' | 'killed'
  usedAtMs: number
  grant: ModelGrant | undefined
}

export interface ModelToken {
  text: string
  /** undefined for that of the exchange. */
  readonly refreshedAtMs: number | undefined
  expiresAtMs: number
}

export interface ModelGrant {
  readonly app: ModelApp
  readonly user: ModelUser
  readonly readsAnswers: boolean
  readonly createdAtMs: number
  readonly refreshExpiresAtMs: number
  /** Oldest first. */
  readonly tokens: ModelToken[]
  id: string
  refreshToken: string
  openid: string
  isRevoked: boolean
}

export type Answer =
  | 'OK'
  | 'invalid_appid'
  | 'invalid_secret'
  | 'invalid_code'
  | 'invalid_refresh_token'
  | 'invalid_token'
  | 'claim_error'
  | 'INVALID_APPID'
  | 'INVALID_CREDENTIALS'
  | 'INVALID_SESSION'
  | 'INVALID_TOKEN'
  | 'ANSWERS_NOT_GRANTED'

/** A moment at which an answer changes; `of` names what it is about, or nothing when it is about no single thing. */
export interface Boundary {
  readonly atMs: number
  readonly of: { readonly code?: ModelCode; readonly grant?: ModelGrant; readonly token?: ModelToken }
}

const NEVER = Number.MAX_SAFE_INTEGER

export class Model {
  readonly apps: ModelApp[] = []
  readonly users: ModelUser[] = []
  readonly codes: ModelCode[] = []
  readonly grants: ModelGrant[] = []
  nowMs = 0

  constructor(readonly rules: Rules) {}

  // -- Authorization -------------------------------------------------------------------------------------------------

  signIn(user: ModelUser): Answer {
    return user.isDisabled ? 'INVALID_CREDENTIALS' : 'OK'
  }

  /** Confirms a form: a new code, or the form's own while that is unused and unexpired (31). */
  confirm(
    app: ModelApp,
    user: ModelUser,
    redirectUri: string,
    form: ModelForm,
    verifier: string | undefined,
  ): { answer: Answer; code?: ModelCode; isNew: boolean } {
    if (form.session !== user.session) return { answer: 'INVALID_SESSION', isNew: false }
    if (app.isDisabled) return { answer: 'INVALID_APPID', isNew: false }
    const live = this.codes.find((code) => code.form === form && this.#isLiveCode(code))
    if (live) return { answer: 'OK', code: live, isNew: false }
    const ofBoth = this.codes.filter(
      (code) => code.app === app && code.user === user && this.#isLiveCode(code), // (33)
    )
    for (const code of ofBoth.slice(0, Math.max(0, ofBoth.length - (this.rules.maxCodes - 1)))) code.state = 'killed'
    const code: ModelCode = {
      app,
      user,
      redirectUri,
      verifier,
      form,
      issuedAtMs: this.nowMs,
      expiresAtMs: this.nowMs + this.rules.codeMs,
      text: '',
      state: 'unused',
      usedAtMs: NEVER,
      grant: undefined,
    }
    this.codes.push(code)
    return { answer: 'OK', code, isNew: true }
  }

  // -- What apps do --------------------------------------------------------------------------------------------------

  /** Spec 4.2; (8) (9) (10) (14) (33) (43). `redirectUri` and `verifier`: undefined when not sent. */
  exchange(
    app: ModelApp,
    secret: string,
    code: ModelCode,
    redirectUri: string | undefined,
    verifier: string | undefined,
  ): { answer: Answer; grant?: ModelGrant } {
    if (app.isDisabled) return { answer: 'invalid_appid' }
    if (!this.#isSecretOf(app, secret)) return { answer: 'invalid_secret' }
    const refused = { answer: 'invalid_code' } as const
    if (code.app !== app || code.state === 'killed') return refused
    if (code.state === 'used') {
      const isReplay = this.nowMs >= code.usedAtMs + this.rules.graceMs && this.nowMs < code.expiresAtMs
      if (isReplay && code.grant) code.grant.isRevoked = true
      return refused
    }
    if (this.nowMs >= code.expiresAtMs) return refused
    if (redirectUri !== undefined && redirectUri !== code.redirectUri) return refused
    if (verifier !== code.verifier) return refused
    if (code.user.isDisabled) return refused

    const ofBoth = this.grants.filter((grant) => grant.app === app && grant.user === code.user && this.isLive(grant))
    for (const grant of ofBoth.slice(0, Math.max(0, ofBoth.length - (this.rules.maxGrants - 1)))) grant.isRevoked = true
    const grant: ModelGrant = {
      app,
      user: code.user,
      readsAnswers: code.form.readsAnswers,
      createdAtMs: this.nowMs,
      refreshExpiresAtMs: this.nowMs + this.rules.refreshTokenMs,
      tokens: [{ text: '', refreshedAtMs: undefined, expiresAtMs: this.nowMs + this.rules.accessTokenMs }],
      id: '',
      refreshToken: '',
      openid: '',
      isRevoked: false,
    }
    this.grants.push(grant)
    code.state = 'used'
    code.usedAtMs = this.nowMs
    code.grant = grant
    return { answer: 'OK', grant }
  }

  /** Spec 4.3; (11) (12) (13). `secret`: empty when it is not sent. */
  refresh(app: ModelApp, grant: ModelGrant, secret: string): { answer: Answer; token?: ModelToken } {
    if (app.isDisabled) return { answer: 'invalid_appid' }
    const mustAuthenticate = secret !== '' || app.requiresSecretOnRefresh
    if (mustAuthenticate && !this.#isSecretOf(app, secret)) return { answer: 'invalid_secret' }
    if (grant.app !== app || !this.isLive(grant) || grant.user.isDisabled) return { answer: 'invalid_refresh_token' }
    const newest = grant.tokens.at(-1)
    if (newest && this.nowMs < this.#sharedUntilMs(newest)) return { answer: 'OK', token: newest }
    const overlapEndsAtMs = this.nowMs + this.rules.overlapMs
    for (const token of grant.tokens) token.expiresAtMs = Math.min(token.expiresAtMs, overlapEndsAtMs)
    const token = { text: '', refreshedAtMs: this.nowMs, expiresAtMs: this.nowMs + this.rules.accessTokenMs }
    grant.tokens.push(token)
    return { answer: 'OK', token }
  }

  /** Spec 4.4; (16). */
  user(app: ModelApp, grant: ModelGrant, token: ModelToken, openid: string): Answer {
    if (app.isDisabled) return 'invalid_appid'
    const isGood = grant.app === app && !grant.isRevoked && !grant.user.isDisabled && this.nowMs < token.expiresAtMs
    if (!isGood) return 'invalid_token'
    return openid === grant.openid ? 'OK' : 'claim_error'
  }

  /** Whether answers may be read (49). */
  answers(app: ModelApp, grant: ModelGrant, token: ModelToken): Answer {
    const answer = this.user(app, grant, token, grant.openid)
    if (answer !== 'OK') return answer === 'invalid_appid' ? 'INVALID_APPID' : 'INVALID_TOKEN'
    return grant.readsAnswers && app.readsAnswers ? 'OK' : 'ANSWERS_NOT_GRANTED'
  }

  // -- What ends things ----------------------------------------------------------------------------------------------

  /** By the operator; a grant that is already revoked stays as it is (16). */
  revoke(grant: ModelGrant): void {
    if (grant.isRevoked) return
    grant.isRevoked = true
    this.#killCodes((code) => code.app === grant.app && code.user === grant.user)
  }

  /** By the user, for the whole app (16). */
  disconnect({ app, user }: ModelGrant): void {
    for (const grant of this.grants) if (grant.app === app && grant.user === user) grant.isRevoked = true
    this.#killCodes((code) => code.app === app && code.user === user)
  }

  setAppDisabled(app: ModelApp, isDisabled: boolean): void {
    if (isDisabled && !app.isDisabled) this.#killCodes((code) => code.app === app)
    app.isDisabled = isDisabled
  }

  setUserDisabled(user: ModelUser, isDisabled: boolean): void {
    if (isDisabled && !user.isDisabled) {
      this.#killCodes((code) => code.user === user)
      user.session = undefined
    }
    user.isDisabled = isDisabled
  }

  /** Everything of theirs has ended; the next user of the name is somebody else (36). */
  deleteUser(user: ModelUser): void {
    this.setUserDisabled(user, true)
    for (const grant of this.grants) if (grant.user === user) grant.isRevoked = true
    const { username, password } = user
    const next = { username, password, nickname: '', session: undefined, signedInAtMs: 0, isDisabled: false }
    this.users[this.users.indexOf(user)] = next
  }

  // -- Questions -----------------------------------------------------------------------------------------------------

  /** Whether any of its tokens is good, given that app and user are. */
  hasGoodToken(grant: ModelGrant): boolean {
    const hasAccessToken = grant.tokens.some(({ expiresAtMs }) => this.nowMs < expiresAtMs)
    return this.isLive(grant) || (!grant.isRevoked && hasAccessToken)
  }

  /** Neither revoked nor past the life of its refresh token. */
  isLive(grant: ModelGrant): boolean {
    return !grant.isRevoked && this.nowMs < grant.refreshExpiresAtMs
  }

  /** Future moments at which an answer changes, ascending. */
  boundaries(): Boundary[] {
    const moments: Boundary[] = [
      ...this.codes.map((code) => ({ atMs: code.expiresAtMs, of: { code } })),
      ...this.codes.map((code) => ({ atMs: code.usedAtMs + this.rules.graceMs, of: { code } })),
      ...this.grants.map((grant) => ({ atMs: grant.refreshExpiresAtMs, of: { grant } })),
      ...this.grants.flatMap((grant) =>
        grant.tokens.map((token) => ({ atMs: token.expiresAtMs, of: { grant, token } })),
      ),
      ...this.grants.flatMap((grant) =>
        grant.tokens.map((token) => ({ atMs: this.#sharedUntilMs(token), of: { grant } })),
      ),
      ...this.apps.flatMap(({ secrets }) => secrets.map(({ expiresAtMs }) => ({ atMs: expiresAtMs, of: {} }))),
    ]
    return moments.filter(({ atMs }) => atMs > this.nowMs + 3 && atMs < NEVER).sort((a, b) => a.atMs - b.atMs)
  }

  #isSecretOf(app: ModelApp, text: string): boolean {
    return app.secrets.some((secret) => secret.text === text && !secret.isRevoked && this.nowMs < secret.expiresAtMs)
  }

  /** Until when refreshes are answered with this token, if it is the newest. */
  #sharedUntilMs({ refreshedAtMs = Number.NEGATIVE_INFINITY }: ModelToken): number {
    return refreshedAtMs + this.rules.overlapMs / 8
  }

  #isLiveCode(code: ModelCode): boolean {
    return code.state === 'unused' && this.nowMs < code.expiresAtMs
  }

  #killCodes(isConcerned: (code: ModelCode) => boolean): void {
    for (const code of this.codes) if (code.state === 'unused' && isConcerned(code)) code.state = 'killed'
  }
}
